// The process that takes the lock over when `leasehold run` is killed (SIGKILL, out of memory), and holds it until the command
// has ended. It sends no SIGTERM: the guard (guard.ts) ends the command, and needs no Node for that.
//
// Its standard input says what to take over (takeover.ts) on a first line. A second line says that there is nothing to do;
// the end of the input without one, that leasehold is gone. It has no output: the terminal is not its own.

import { createInterface } from 'node:readline'
import { LockClient } from '../client'
import { decodeTakeover, OVER, type Takeover } from './takeover'
import { isGoneWithin, isRunning, kill } from './target'

/**
 * How much longer than `grace`, in ms, the lock is held at most: the guard rounds to whole seconds, and a process that is
 * killed takes a moment to go. Longer would let a command that no signal ends keep the lock; shorter would let it go too
 * early on a busy machine.
 */
const MARGIN = 5_000
/** How often to look whether the lease was lost, in ms. */
const LOOK = 1_000

async function hold(locks: LockClient, { ticket, grace, target }: Takeover): Promise<void> {
  const end = performance.now() + grace + MARGIN
  const acquirer = LockClient.acquirerOf(locks).outliving()
  const asked = { ...acquirer.defaults, ttl: ticket.ttl, most: ticket.most, wait: -1 }
  // If it is lost, the command goes on for what is left of its grace, as after any loss.
  const lease = await acquirer.adopt(ticket, asked)
  while (lease.isHeld) {
    const left = end - performance.now()
    if (left <= 0) break
    if (await isGoneWithin(target, Math.min(left, LOOK))) break
  }
  // The guard may be gone as well.
  if (isRunning(target)) kill(target, 'SIGKILL')
  await lease.release()
}

async function main(): Promise<void> {
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  const first = await lines.next()
  // The command could not be started.
  if (first.done || first.value === OVER) return
  const takeover = decodeTakeover(first.value)
  // Before it is needed: this loads the addon, and connects to nothing.
  const locks = new LockClient(takeover.options)
  locks.on('error', () => {})
  try {
    const second = await lines.next()
    if (second.done) await hold(locks, takeover)
  } finally {
    await locks.close()
  }
}

// What is sent to end the command must not end this first.
for (const signal of ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM', 'SIGUSR1', 'SIGUSR2'] as const)
  process.on(signal, () => {})

main().catch(() => {
  // There is nobody to tell: the lock ends with its ttl.
  process.exitCode = 1
})
