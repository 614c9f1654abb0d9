// Delivers what native code reports, as records about slots, to the owners of the slots.
//
// Native code wakes this thread once for all that has settled. A record has a slot, a kind
// (protocol.ts) and two values.

import { now } from '../util/clock'
import { setImmediate } from '../util/real-timers'
import { throwUncaught } from '../util/uncaught'
import { loadAddon } from './addon'
import { Bridge } from './bridge'
import { isLastRecord, RECORD_LENGTH, RecordKind } from './protocol'
import { deliverRecord, noteRecord, slots } from './slots'

// A constant of this file is faster than an import.
const LENGTH = RECORD_LENGTH
const ROOM = 512
const records = new Float64Array(LENGTH * ROOM)

/** The bridge of this environment: set by {@link openBridge}, before anything can need it. */
export let bridge: Bridge

/**
 * Opens the bridge, unless it is open. The first call makes the bridge, so that an import never
 * fails. `onOpen`: see {@link Bridge.open}.
 */
export function openBridge(onOpen: () => () => void): void {
  bridge ??= new Bridge(new (loadAddon().Bridge)(), wake)
  bridge.open(onOpen)
}

// An exception that reached native code would end the process without a message.
function wake(): void {
  try {
    drain()
  } catch (error) {
    throwUncaught(error)
  }
}

/**
 * How long, in ms, and how many records the client delivers without a break. If a server fails,
 * thousands of leases can be lost at once, and each loss calls the user's code. Settled promises
 * call that code only after the slice, so the number of records has a limit, too. If these are
 * larger, other events of the process wait longer; if they are smaller, breaks take a larger part
 * of the time.
 *
 * Native code may wake this thread several times in one turn of the event loop, and each wake
 * delivers a slice. The user's code runs after each slice. So `time` counts from the first slice of
 * a turn: when it is over, no slice begins until the next turn.
 */
const SLICE = { time: 5, records: 256 }
/**
 * The clock is read after each loss, because its listeners may take long, and after every fourth
 * other record, because a reading costs more than such a delivery.
 */
const RECORDS_PER_CLOCK_READING = 4
/**
 * After this many records, a call in the next turn of the event loop begins a new turn. Fewer
 * records may belong to several turns, because such a call costs more than a record.
 */
const RECORDS_PER_TURN_CALL = 32

/** The time until which slices may begin in this turn of the event loop. */
let turnEnd = 0

/** How many records have been delivered since the last call that begins a turn was made. */
let delivered = 0

/** Whether a call that begins the next turn is pending. */
let turnPending = false

/** Whether records are being delivered; also true during a break. */
let draining = false
/** Whether native code may have more records. */
let more = false
/** The range of `records` that has yet to be delivered. */
let [next, end] = [0, 0]

function drain(): void {
  // A delivered record may start so many operations that they cross at once and find something to
  // drain.
  more = true
  if (draining) return
  draining = true
  drainSlice()
}

/** Delivers a slice of the records, and the rest after breaks. */
function drainSlice(): void {
  // If a delivery throws, `isOver` stays false, and the other records follow after a break.
  let isOver = false
  try {
    isOver = !deliverSlice()
  } finally {
    draining = !isOver
    // The pending call also keeps the process alive.
    if (draining) setImmediate(goOn)
    else if (delivered > RECORDS_PER_TURN_CALL && !turnPending) {
      // This call begins a new turn, but is no break: nothing waits for it. Native code hands a
      // lease on many times in one turn, and a break would end these hand-offs.
      turnPending = true
      setImmediate(beginTurn)
    }
  }
}

function beginTurn(): void {
  turnPending = false
  delivered = 0
}

function goOn(): void {
  beginTurn()
  try {
    drainSlice()
  } catch (error) {
    throwUncaught(error)
  }
}

/** Delivers a slice of the records. Returns true if records are left. */
function deliverSlice(): boolean {
  const begin = now()
  if (!turnPending) turnEnd = begin + SLICE.time
  if (begin > turnEnd) return true
  let left = SLICE.records
  let unread = 0
  for (;;) {
    while (next < end) {
      if (left === 0) return true
      if (unread >= RECORDS_PER_CLOCK_READING) {
        if (now() > turnEnd) return true
        unread = 0
      }
      const at = next
      next += LENGTH
      left--
      delivered++
      unread += records[at + 1] === RecordKind.Lost ? RECORDS_PER_CLOCK_READING : 1
      deliverAt(at)
    }
    // A drain that fills `records` may leave some in native code. After any other drain, there are
    // more only if `drain` was called meanwhile.
    if (end < ROOM * LENGTH) {
      if (!more) return false
      more = false
    }
    takeOut()
  }
}

/**
 * Takes records out of native code, and notes their states. All states are noted before any record
 * is delivered, so that the user's code sees each lease as it is, not as it was.
 */
function takeOut(): void {
  next = 0
  end = bridge.drain(records) * LENGTH
  for (let i = 0; i < end; i += LENGTH) {
    const owner = slots[records[i] as number]
    owner?.[noteRecord](records[i + 1] as number, records[i + 2] as number, records[i + 3] as number)
  }
}

function deliverAt(at: number): void {
  const slot = records[at] as number
  const kind = records[at + 1] as number
  const owner = slots[slot]
  if (isLastRecord(kind)) {
    slots[slot] = undefined
    bridge.free(slot)
  }
  owner?.[deliverRecord](kind, records[at + 2] as number, records[at + 3] as number)
}
