// The native addon: what src/binding/ exports, and its loading.

import { noteCopy } from '../util/copies'
import { singleton } from '../util/singleton'

/**
 * The class that native code exports. Each copy of the package has one instance in each environment
 * (a thread of Node).
 */
export interface NativeBridge {
  open(wake: () => void): void
  close(): void
  isSideKey(name: string): boolean
  openClient(options: OpenedClient): number
  submit(operations: Float64Array, count: number, texts: string): boolean
  isHeld(slot: number): boolean
  remaining(slot: number): number
  phase(slot: number): number
  loss(slot: number): string | null
  token(slot: number): string | null
  seeTicket(token: string): void
  stats(client: number): string | null
  drain(records: Float64Array): number
  text(index: number): string | null
  hold(): void
  unhold(): void
  excuse(): void
  releaseAtEnd(): boolean
  releaseAll(timeout: number): void
}

/** The certificates for TLS, as PEM texts. */
export interface TlsConfig {
  ca: string[]
  cert?: string
  key?: string
  servername?: string
}

export interface ClientConfig {
  /** One URL, or those of the nodes of a quorum. */
  stores: string[]
  username?: string
  password?: string
  tls?: TlsConfig
  sentinelUsername?: string
  sentinelPassword?: string
  minReplicas: number
  prefix: string
  name: string
  maxStall: number
  storeTimeout: number
  handOffs: number
}

/** The argument of `openClient`. */
export interface OpenedClient extends ClientConfig {
  /** The slot that gets the records about the store's breakers and availability. */
  watch: number
}

/** The pure state machine of src/worker.rs. */
export interface WorkerMachine {
  readonly state: string
  send(event: number): number[]
}

interface Addon {
  Bridge: new () => NativeBridge
  WorkerMachine: new () => WorkerMachine
  continueWithParent(): void
}

/**
 * Loads the addon once for all copies of this version, so that they share one engine and one SQLite
 * that knows all open files. Each copy makes its own bridge, and notes that it is in use.
 */
export function loadAddon(): Addon {
  noteCopy()
  return singleton('native', requireAddon)
}

function requireAddon(): Addon {
  try {
    return require('../../native.cjs')
  } catch (cause) {
    // Load this module only if the addon is missing.
    const { missingAddon } = require('./missing-addon') as typeof import('./missing-addon')
    throw missingAddon(cause)
  }
}
