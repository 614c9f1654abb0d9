// The implementation and index.d.ts export the same, and what the one exports serves as what the other promises.

import type * as api from '../../index'
import type * as lib from '../../lib/index'
import type * as otelLib from '../../lib/otel'
import type * as prometheusLib from '../../lib/prometheus'
import type * as otelApi from '../../types/otel'
import type * as prometheusApi from '../../types/prometheus'
import { same } from './equal'

type Api = typeof api
type Lib = typeof lib

same<keyof Api, keyof Lib>()

declare const implementation: Lib
export const promised: Api = implementation

// The same for what has an entry of its own.
same<keyof typeof otelApi, keyof typeof otelLib>()
same<keyof typeof prometheusApi, keyof typeof prometheusLib>()
declare const entries: { otel: typeof otelLib; prometheus: typeof prometheusLib }
export const entriesPromised: { otel: typeof otelApi; prometheus: typeof prometheusApi } = entries

// Each class one by one, so that a failure names it; in both directions, as far as instances go.
declare const errors: {
  [Name in Extract<keyof Api, `${string}Error`>]: [InstanceType<Api[Name]>, InstanceType<Lib[Name]>]
}
export const there: { [Name in keyof typeof errors]: readonly [InstanceType<Lib[Name]>, InstanceType<Api[Name]>] } =
  errors
