// The successor: if `leasehold run` is killed (SIGKILL, out of memory), it takes the lock over and
// holds it until the command has ended. It sends no SIGTERM: the guard (guard.ts) ends the command,
// without Node.
//
// The first line of its standard input says what to take over (takeover.ts). A second line says
// that there is nothing to do. If the input ends without a second line, leasehold is gone. The
// successor prints nothing: the terminal is not its own.

import { createInterface } from 'node:readline'
import { LockClient } from '../client'
import { decodeTakeover, OVER, type Takeover } from './takeover'
import { isGoneWithin, kill } from './target'

/**
 * How much longer than `grace` the successor holds the lock at most, in ms. The guard rounds to
 * whole seconds, and a killed process takes a moment to go. If this is larger, a command that no
 * signal ends keeps the lock for longer; if it is smaller, a busy machine releases the lock too
 * early.
 */
const MARGIN = 5_000
/**
 * How long the successor waits for the end of a command that it killed, in ms. If this is larger, a
 * process that can't be killed keeps its lock for longer. If it is smaller, a busy machine releases
 * the lock while the command still runs.
 */
const KILLED_WITHIN = 2_000

async function hold(locks: LockClient, { ticket, grace, target }: Takeover): Promise<void> {
  const end = performance.now() + grace + MARGIN
  const acquirer = LockClient.acquirerOf(locks).outliving()
  const asked = { ...acquirer.defaults, ttl: ticket.ttl, most: ticket.most, wait: -1 }
  // If this fails, the lease is lost. The command goes on for the rest of its grace, as after any
  // loss.
  const lease = await acquirer.adopt(ticket, asked)
  const isGone = await isGoneWithin(target, Math.max(0, end - performance.now()))
  // The guard kills the command when `grace` is over, unless the guard was killed, too.
  if (!isGone) {
    kill(target, 'SIGKILL')
    await isGoneWithin(target, KILLED_WITHIN)
  }
  await lease.release()
}

async function main(): Promise<void> {
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  const first = await lines.next()
  // The command could not be started.
  if (first.done || first.value === OVER) return
  const takeover = decodeTakeover(first.value)
  // Made before it is needed: this loads the addon and connects to nothing.
  const locks = new LockClient(takeover.options)
  locks.on('error', () => {})
  try {
    const second = await lines.next()
    if (second.done) await hold(locks, takeover)
  } finally {
    await locks.close()
  }
}

// A signal that ends the command must not end the successor first.
for (const signal of ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM', 'SIGUSR1', 'SIGUSR2'] as const)
  process.on(signal, () => {})

main().catch(() => {
  // No process reads an error message. The lock ends with its ttl.
  process.exitCode = 1
})
