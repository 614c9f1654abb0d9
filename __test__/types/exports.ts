// The implementation exports the names of index.d.ts, and its exports have the declared types.

import type * as api from '../../index'
import type * as lib from '../../lib/index'
import type * as otelLib from '../../lib/integrations/otel'
import type * as prometheusLib from '../../lib/integrations/prometheus'
import type * as otelApi from '../../types/otel'
import type * as prometheusApi from '../../types/prometheus'
import { same } from './equal'

type Api = typeof api
type Lib = typeof lib

same<keyof Api, keyof Lib>()

declare const implementation: Lib
export const declared: Api = implementation

// The same holds for modules with their own entry.
same<keyof typeof otelApi, keyof typeof otelLib>()
same<keyof typeof prometheusApi, keyof typeof prometheusLib>()
declare const entries: { otel: typeof otelLib; prometheus: typeof prometheusLib }
export const declaredEntries: { otel: typeof otelApi; prometheus: typeof prometheusApi } = entries

// This checks each class alone, so that a failure names it, and instances in both directions.
declare const errors: {
  [Name in Extract<keyof Api, `${string}Error`>]: [InstanceType<Api[Name]>, InstanceType<Lib[Name]>]
}
export const instances: { [Name in keyof typeof errors]: readonly [InstanceType<Lib[Name]>, InstanceType<Api[Name]>] } =
  errors
