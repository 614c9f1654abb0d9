// The boundary to the Rust half, src/binding/: its types, its loading, and the loop that delivers what it reports.
//
// Only numbers and short strings cross, and as many at a time as there are. A *slot* is a small number that names
// one pending operation or one lease; see bridge.ts for how it is chosen.

import { setImmediate } from 'node:timers'
import { Bridge } from './bridge'
import { now } from './clock'
import { shared } from './copies'
import { rethrow } from './rethrow'
import type { TlsConfig } from './tls'

/** The class that native code exports, one instance for each environment. */
export interface NativeBridge {
  isSideKey(name: string): boolean
  openClient(options: OpenedClient): number
  submit(operations: Float64Array, count: number, keys: string): boolean
  isHeld(slot: number): boolean
  remaining(slot: number): number
  phase(slot: number): number
  failure(slot: number): string | null
  token(slot: number): string
  stats(client: number): string
  drain(records: Float64Array): number
  text(index: number): string
  hold(): void
  unhold(): void
  excuse(): void
  releaseAtEnd(): boolean
  releaseAll(timeout: number): void
}

export interface ClientConfig {
  /** One, or the nodes of a quorum. */
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

/** What `openClient` is given: the slot that is told of breakers, too. */
export interface OpenedClient extends ClientConfig {
  watch: number
}

/** The pure state machine of src/worker.rs. */
export interface WorkerMachine {
  readonly state: string
  send(event: number): number[]
}

interface NativeModule {
  Bridge: new (wake: () => void) => NativeBridge
  WorkerMachine: new () => WorkerMachine
}

/**
 * The kinds of records about a slot. The comments name the two values of a record, and tell whether
 * it is the last record of its slot.
 */
export const Kind = {
  /** fence */
  Acquired: 0,
  /** last */
  Busy: 1,
  /** 1 if its own client holds the lock; last */
  TimedOut: 2,
  /** error kind, text; last */
  Failed: 3,
  /** last */
  Closed: 4,
  /** last */
  Cancelled: 5,
  /** 1 if the store still knew it, or the lock was held that was to be broken; last */
  Released: 6,
  /** phase, and one more than the text with the JSON of its last renewal's failure, or 0; last */
  Lost: 7,
  Renewed: 8,
  /** error kind, text */
  RenewFailed: 9,
  AutoRenewed: 10,
  /** 1 and a text with JSON, or 0 if nobody holds the lock; last */
  Inspected: 11,
  /** last */
  Done: 12,
  /** last */
  Detached: 13,
  /** text with JSON */
  Breaker: 14,
  /** 1 and a text with JSON; last */
  Diagnosed: 15,
  /** 1 and a text with JSON; last */
  Listed: 16,
  /** the ttl of the lease that is being adopted, if it is shorter than its ticket says */
  Shortened: 17,
  /** see {@link Availability} */
  Availability: 18,
} as const

/**
 * Says whether the store can grant leases, as its circuit breakers know it. `Refusing`: the store
 * has refused several acquires in a row. `Away`: requests fail at once, and are not sent.
 */
export const Availability = { Usable: 0, Refusing: 1, Away: 2 } as const

/**
 * The states of a lease, numbered as in native code. From `FirstLoss` on, the lease is lost, for
 * `lossReasons[phase - FirstLoss]`.
 */
export const Phase = { Pending: 0, Held: 1, Stalled: 2, Released: 3, FirstLoss: 4, Missing: 6, Closed: 8 } as const

/**
 * How many clients may hold a lock at a time, as native code numbers it: 0 for one exclusive
 * holder, n for up to n holders, `Readers` for any number.
 */
export const Most = { Exclusive: 0, Readers: 4_294_967_295 } as const

/**
 * Bits that may be added to the code of an acquire or an adoption. Bit 64 is bridge.ts' own. A
 * lease with `OutlivesProcess` lives until its ttl ends, even if this process is gone. Without that
 * bit, the embedded store frees the lease as soon as this process is gone. With `TicketTtl`, the
 * ttl of the adoption comes from its ticket. An acquire with `FailFast` does not wait for a store
 * that can't grant leases.
 */
export const Flag = {
  NoRenewal: 16,
  ReportRenewals: 32,
  OutlivesProcess: 128,
  Section: 256,
  TicketTtl: 512,
  FailFast: 1024,
} as const

/** Returns `flags` with or without {@link Flag.FailFast}. */
export function withFailFast(flags: number, failFast: boolean): number {
  return failFast ? flags | Flag.FailFast : flags & ~Flag.FailFast
}

// Symbols, because a Lease is a slot and its users must not see these methods.
export const note: unique symbol = Symbol('leasehold.note')
export const tell: unique symbol = Symbol('leasehold.tell')

/** Whoever a slot belongs to. */
export interface Slot {
  /** Takes notice of a record. Runs no code of the user. */
  [note](kind: number, a: number, b: number): void
  /** Lets the user know of it. */
  [tell](kind: number, a: number, b: number): void
}

const RECORD = 4
const ROOM = 512
const records = new Float64Array(RECORD * ROOM)

/** Who has which slot. */
export const slots: (Slot | undefined)[] = []

/** The bridge of this environment: set by {@link open}, before anything can need it. */
export let bridge: Bridge

/**
 * Loads the native module once for all copies of this version, so that they share one engine and
 * one SQLite that knows all open files. Each copy makes its own bridge to the module.
 */
const load = (): NativeModule => shared('native', requireAddon)

function requireAddon(): NativeModule {
  try {
    return require('../native.cjs')
  } catch (cause) {
    // Load this module only if the addon is missing.
    const { missingAddon } = require('./missing-addon') as typeof import('./missing-addon')
    throw missingAddon(cause)
  }
}

/**
 * Makes the bridge on the first call, so that an import never fails. Returns whether this call made
 * it.
 */
export function open(): boolean {
  if (bridge !== undefined) return false
  bridge = new Bridge(new (load().Bridge)(wake), wake)
  return true
}

export function createMachine(): WorkerMachine {
  return new (load().WorkerMachine)()
}

// An exception that reached native code would end the process without a word.
function wake(): void {
  try {
    drain()
  } catch (error) {
    rethrow(error)
  }
}

/**
 * How long, in ms, and how many records the client tells without a break. If a server fails,
 * thousands of leases can be lost at once, and each loss calls the user's code. Settled promises call
 * that code only in the break, so the number of records has a limit, too. If these are larger, other
 * events of the process wait longer; if they are smaller, breaks take a larger part of the time.
 */
const SLICE = { time: 5, records: 256 }

// Not the global one, which a fake clock replaces.
const later = setImmediate

/** Whether records are being told (also true during a break), and whether native code may have more. */
let draining = false
let more = false
/** The range of `records` that has yet to be told. */
let [told, end] = [0, 0]

function drain(): void {
  // What is told may ask for so much that it crosses at once, and finds something to drain.
  more = true
  if (draining) return
  draining = true
  drainSlice()
}

/** Tells a slice of the records, and the rest after breaks. */
function drainSlice(): void {
  let isOver = true
  try {
    isOver = !tellSlice()
  } finally {
    draining = !isOver
    // The pending call also keeps the process alive.
    if (draining) later(goOn)
  }
}

function goOn(): void {
  try {
    drainSlice()
  } catch (error) {
    rethrow(error)
  }
}

/** Tells a slice of the records. Returns true if records are left. */
function tellSlice(): boolean {
  const until = now() + SLICE.time
  let left = SLICE.records
  for (;;) {
    while (told < end) {
      if (left-- === 0 || now() > until) return true
      const at = told
      told += RECORD
      tellOf(at)
    }
    // A drain that fills `records` may leave some in native code. After any other drain, there are more
    // only if `drain` was called meanwhile.
    if (end < ROOM * RECORD) {
      if (!more) return false
      more = false
    }
    takeOut()
  }
}

/**
 * Takes records out of native code. Notes all states before any record is told, so that the user's
 * code sees each lease as it is, not as it was.
 */
function takeOut(): void {
  told = 0
  end = bridge.drain(records) * RECORD
  for (let i = 0; i < end; i += RECORD) {
    const owner = slots[records[i] as number]
    owner?.[note](records[i + 1] as number, records[i + 2] as number, records[i + 3] as number)
  }
}

function tellOf(at: number): void {
  const slot = records[at] as number
  const kind = records[at + 1] as number
  const owner = slots[slot]
  if (isLast(kind)) {
    slots[slot] = undefined
    bridge.free(slot)
  }
  owner?.[tell](kind, records[at + 2] as number, records[at + 3] as number)
}

function isLast(kind: number): boolean {
  const goesOn = kind === Kind.Acquired || kind === Kind.Breaker || kind === Kind.Shortened
  const isAboutStore = kind === Kind.Availability
  return !goesOn && !isAboutStore && !(kind >= Kind.Renewed && kind <= Kind.AutoRenewed)
}
