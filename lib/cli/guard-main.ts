// The guard: if `leasehold run` is killed (SIGKILL, out of memory), or stopped (SIGSTOP) until its
// lock is about to end, this process ends the command, and keeps the lock held until the command
// has ended (command-ending.ts).
//
// The first line of its standard input has the options of the client that can take the lock over.
// The second line says which command to watch, what to take over and, after a blank, until when the
// lock is safe (takeover.ts). A later line says until when the lock is safe after a renewal, that
// the command is gone, or that the lock was released. This process answers each line but the first
// and the last with a line to its standard output. leasehold waits for that before it reports the
// next renewal, so the pipe of a stopped guard does not fill up. Only leasehold has the other end
// of the input, so when the input ends, leasehold is gone.
//
// Before the first answer, this process loads and starts all that the end of the command needs.
// Later, the package may be removed, or the system may have no room for another process or thread.

import { once } from 'node:events'
import { writeSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import type * as api from '../../index'
import { LockClient } from '../client/client'
import { loadAddon } from '../native/addon'
import { endCommand, releaseLock } from './command-ending'
import { GuardWatch } from './guard-watch'
import { hasExited, isStopped } from './process-table'
import { decode, decodeReport, ENDING, GONE_COMMAND, OVER, type Takeover } from './takeover'
import { uptime } from './uptime'

/** Takes the place of a line when the input has ended. */
const GONE = ''

const isEnd = (line: string): boolean => line === GONE || line === OVER

/** The id of leasehold's process. After its end, this process has another parent. */
const parent = process.ppid

async function main(): Promise<void> {
  // With this title, `killall node` leaves the guard alone, and `ps` shows what it is.
  process.title = 'leasehold-guard'
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  const next = async (): Promise<string> => {
    const { done, value } = await lines.next()
    return done ? GONE : value
  }
  const options = await next()
  if (isEnd(options)) return
  const locks = clientOf(decode(options))
  try {
    const line = await next()
    // The command was not started.
    if (isEnd(line) || line === GONE_COMMAND) return
    const blank = line.indexOf(' ')
    const takeover = decode<Takeover>(line.slice(0, blank))
    const watch = new GuardWatch(takeover.ticket.ttl, decodeReport(line.slice(blank + 1)))
    // Connect now. Nothing depends on the answer.
    locks?.inspect(takeover.ticket.key).catch(() => {})
    answer('watching')
    const task = await watchUntilEnd(next, watch, takeover)
    if (task === 'end') await endCommand(locks, takeover, safeUntil(watch, takeover))
    else if (task === 'release') await releaseLock(locks, takeover)
  } finally {
    await locks?.close()
    // A stopped leasehold keeps the pipe open.
    process.stdin.destroy()
  }
}

/**
 * Creates the client that can take the lock over. Returns `undefined` if it can't be created: then
 * the guard can only end the command.
 */
function clientOf(options: api.LockClientOptions): LockClient | undefined {
  try {
    loadAddon().continueWithParent()
    const locks = new LockClient(options)
    locks.on('error', () => {})
    return locks
  } catch {
    return undefined
  }
}

/**
 * Watches until leasehold is gone, or is stopped for too long, or has released the lock. Resolves
 * with what is left to do: `'end'` the command, `'release'` the lock of a command that is gone, or
 * nothing. `next` resolves with the next line.
 */
async function watchUntilEnd(
  next: () => Promise<string>,
  watch: GuardWatch,
  { command }: Takeover,
): Promise<'end' | 'release' | undefined> {
  for (let isGone = false; ; ) {
    const arrival = new AbortController()
    let heard: string | undefined
    // Promise.race() would add a reaction to the line's promise at each look, and the promise would
    // keep all of them.
    const hear = (line: string) => {
      heard = line
      arrival.abort()
    }
    next().then(hear, () => hear(GONE))
    while (heard === undefined) {
      await untilLook(watch, arrival.signal)
      const now = uptime()
      if (heard !== undefined || now === undefined || isGone) continue
      if (!watch.mustEnd(now, isParentStopped, () => hasExited(command.pid))) continue
      answer(ENDING)
      return 'end'
    }
    if (heard === OVER) return undefined
    if (heard === GONE) return isGone || watch.hasExited ? 'release' : 'end'
    if (heard === GONE_COMMAND) isGone = true
    else watch.renewed(decodeReport(heard))
    answer('reported')
  }
}

/**
 * Resolves when it is time to look whether leasehold is stopped, or when `arrival` aborts. Without
 * /proc, there is nothing to look at, so it resolves only when `arrival` aborts.
 */
async function untilLook(watch: GuardWatch, arrival: AbortSignal): Promise<void> {
  const now = uptime()
  const pause = now === undefined ? undefined : watch.pause(now)
  if (pause === undefined) await once(arrival, 'abort')
  else await sleep(pause, undefined, { signal: arrival }).catch(() => {})
}

const isParentStopped = () => process.ppid === parent && isStopped(parent)

/**
 * Returns until when the lock is safe if the store does not answer, in ms of `performance.now()`.
 */
function safeUntil({ report }: GuardWatch, { ticket }: Takeover): number {
  const now = uptime()
  // leasehold renews the lock when two thirds of its ttl are left.
  const left = report.safe === undefined || now === undefined ? ticket.ttl / 3 : report.safe - now
  return performance.now() + left
}

/** Answers a line from leasehold. */
function answer(text: string): void {
  try {
    writeSync(1, `${text}\n`)
  } catch {
    // leasehold is gone, or does not read its pipe because it is stopped.
  }
}

// A signal that ends the command must not end its guard first.
for (const signal of ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM', 'SIGUSR1', 'SIGUSR2'] as const)
  process.on(signal, () => {})

main().catch(() => {
  // No process reads an error message. The lock ends with its ttl.
  process.exitCode = 1
})
