// The successor: if `leasehold run` is killed (SIGKILL, out of memory), it takes the lock over and
// holds it until the command has ended. The guard (guard.ts) ends the command without Node, as far
// as a shell can find its processes. The successor finds and ends the others.
//
// The first line of its standard input says what to take over (takeover.ts) and, after a blank,
// until when the lock is safe. If leasehold started the successor, the input goes on: a later line
// says until when the lock is safe after a renewal, or that there is nothing to do. The successor
// answers each line but the last with a line to its standard output, so that the pipe of a stopped
// successor does not fill up. When the input ends, leasehold is gone. If leasehold is stopped, the
// guard sends SIGURG instead.
//
// As long as the successor renews the lock, it sends SIGUSR1 to the guard, whose process id is its
// argument. Without these signals, the guard ends the command before the lock can end.

import { existsSync, readFileSync, writeSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { LockClient } from '../client/client'
import type { Lease } from '../lock/lease'
import { isStopped } from './process-table'
import { decodeTakeover, OVER, type Takeover } from './takeover'
import { Target } from './target'
import { uptime } from './uptime'

/**
 * How long the successor waits for the end of a command that it killed, in ms. If this is larger, a
 * process that can't be killed keeps its lock for longer. If it is smaller, a busy machine releases
 * the lock while the command still runs.
 */
const KILLED_WITHIN = 2_000
/**
 * How often the successor tells the guard that it renews the lock, in ms. If this is larger, the
 * guard, which looks once per second, may end the command although the lock is held.
 */
const TELL_EVERY = 250
/**
 * How long the successor waits for the adoption before it searches for the command's processes: a
 * part of the time for which the lock is safe, and bounds for the result in ms. If these are
 * larger, and the store is out of reach, the command's processes in other sessions get SIGTERM
 * later, and have less time to clean up. If they are smaller, a slow store answers during the
 * search, and the guard hears of the adoption after the search.
 */
const [ADOPTS_IN_PART, ADOPTS_LEAST, ADOPTS_MOST] = [1 / 4, 300, 1_000]

async function hold(locks: LockClient, { ticket, grace, command }: Takeover, safe: number): Promise<void> {
  const acquirer = LockClient.acquirerOf(locks).outliving()
  const asked = { ...acquirer.defaults, ttl: ticket.ttl, most: ticket.most, wait: -1 }
  let lease: Lease | undefined
  let isAsking = true
  const adopted = acquirer
    .adopt(ticket, asked)
    .then((adoptee) => {
      lease = adoptee
    })
    .catch(() => {})
    .finally(() => {
      isAsking = false
    })
  const remaining = () => lease?.remaining ?? 0
  /** Returns false if another command may begin soon: then this one has no more time. */
  const isSafe = () => (isAsking ? performance.now() < safe : remaining() > ticket.ttl / 3)
  let told = 0
  const tell = () => {
    // The guard assumes that two thirds of the ttl are left.
    if (performance.now() - told < TELL_EVERY || remaining() <= (ticket.ttl * 2) / 3) return
    told = performance.now()
    tellGuard()
  }
  // Adopt and tell the guard before the search for the command's processes. The search blocks this
  // process, for seconds on a busy machine with many processes.
  const left = Math.max(0, safe - performance.now())
  const pause = Math.min(left, ADOPTS_MOST, Math.max(ADOPTS_LEAST, left * ADOPTS_IN_PART))
  await Promise.race([adopted, sleep(pause)])
  tell()
  const timer = setInterval(tell, TELL_EVERY / 2)
  await end(new Target(command, tell), grace, isSafe)
  clearInterval(timer)
  await adopted
  await lease?.release()
}

/**
 * Ends the command: kills it after the grace, or as soon as `isSafe` returns false. Resolves when
 * the command has ended, or can't be killed.
 */
async function end(target: Target, grace: number, isSafe: () => boolean): Promise<void> {
  // The guard has sent SIGTERM to the whole session, if the command leads one.
  if (grace > 0 && isSafe()) target.endOthers(target.look(), (member) => target.leadsSessionOf(member))
  if (await target.isGoneWithin(grace, isSafe)) return
  await target.isKilledWithin(KILLED_WITHIN)
}

async function main(): Promise<void> {
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  const first = await lines.next()
  // The command could not be started.
  if (first.done || first.value === OVER) return
  const [encoded = '', ...reported] = first.value.split(' ')
  let [safe] = reported
  const takeover = decodeTakeover(encoded)
  // Create the client before it is needed: this loads the addon, and connects to nothing.
  const locks = new LockClient(takeover.options)
  locks.on('error', () => {})
  answer()
  try {
    for (;;) {
      const line = await Promise.race([lines.next(), stopped])
      if (line.done) break
      if (line.value === OVER) return
      safe = line.value
      answer()
    }
    await hold(locks, takeover, safeUntil(takeover, safe))
  } finally {
    await locks.close()
    // While leasehold is stopped, it keeps the pipe open.
    process.stdin.destroy()
  }
}

/**
 * Returns until when the lock is safe if the store does not answer, in ms of `performance.now()`.
 * `safe` is that time as leasehold or the guard knows it, in hundredths of a second since the boot.
 */
function safeUntil({ ticket }: Takeover, safe: string | undefined): number {
  const now = uptime()
  const left = safe === undefined || now === undefined ? ticket.ttl / 3 : (Number(safe) - now) * 10
  return performance.now() + left
}

/**
 * Answers a line from leasehold. If the guard's shell has started this process, nothing reads the
 * answer.
 */
function answer(): void {
  try {
    writeSync(1, 'read\n')
  } catch {
    // leasehold is gone.
  }
}

const guard = Number(process.argv[2])

function tellGuard(): void {
  try {
    if (isGuard()) process.kill(guard, 'SIGUSR1')
  } catch {
    // The guard is gone.
  }
}

/** Returns false if another process has the id of the guard; always true without /proc. */
function isGuard(): boolean {
  if (!existsSync('/proc/self/cmdline')) return true
  return readFileSync(`/proc/${guard}/cmdline`, 'utf8').includes('leasehold-guard')
}

/** Resolves when the guard says that leasehold is stopped. Ignores signals while leasehold runs. */
const stopped = new Promise<{ done: true }>((resolve) => {
  process.on('SIGURG', () => isStopped(process.ppid) && resolve({ done: true }))
})

// A signal that ends the command must not end the successor first.
for (const signal of ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM', 'SIGUSR1', 'SIGUSR2'] as const)
  process.on(signal, () => {})

main().catch(() => {
  // No process reads an error message. The lock ends with its ttl.
  process.exitCode = 1
})
