// Shuts down by the recipe of leasehold's guide: docs/servers.md, "Shutting down".

import type { Server } from 'node:http'
import type { Socket } from 'node:net'
import type { LockClient, LockWorker, Schedule } from 'leasehold'
import type { Health } from './health.js'
import type { Log } from './log.js'

const SIGNALS = ['SIGTERM', 'SIGINT'] as const

/**
 * How long further signals are ignored, in ms. The terminal sends Ctrl-C to all processes, and npm
 * passes it on. If this is smaller, such a second copy cuts off requests. If it is larger, a user
 * who presses Ctrl-C twice has to press it once more.
 */
const PASSED_ON_WITHIN = 500

interface Parts {
  readonly log: Log
  readonly health: Health
  readonly server: Server
  readonly worker: LockWorker
  readonly nightly: Schedule
  readonly locks: LockClient
  /** Closes the rest: what requests, the worker and the schedule use. */
  closeRest(): Promise<unknown>
}

/**
 * Shuts down on the first SIGTERM or SIGINT. A signal more than 0.5 s later ends the process at
 * once. Call it directly before or after `server.listen()`.
 *
 * The limit, 10 s, has to be longer than `keepAliveTimeout` plus twice the longest request. Here
 * these are 2 s (newer versions of Node add 1 s to the timeout) and twice 3.5 s (1 s of waiting for
 * the lock, 2.5 s of paying), together 9 s.
 */
export function shutDownOnSignal({ log, health, server, worker, nightly, locks, closeRest }: Parts): void {
  server.keepAliveTimeout = 1_000
  const sockets = new Set<Socket>()
  server.on('connection', (socket) => sockets.add(socket.once('close', () => sockets.delete(socket))))

  async function shutDown(signal: NodeJS.Signals): Promise<void> {
    health.end()
    log.info('shutting down', { signal })
    // Each open connection closes after its next request.
    server.prependListener('request', (_request, response) => response.setHeader('connection', 'close'))
    // Otherwise close() resets idle connections, even if a request has just arrived on one of them.
    server.closeIdleConnections = () => {}
    // A client may connect and send nothing.
    setTimeout(() => {
      for (const socket of sockets) socket.destroy()
    }, 10_000).unref()
    await new Promise((closed) => server.close(closed)) // no new connections; requests in flight are answered
    log.info('server closed')
    await Promise.all([worker.stop(), nightly.stop()]) // their work ends, then they release their locks
    log.info('work ended')
    await locks.close() // waits for the work that still runs under a lock
    await closeRest()
    log.info('stopped')
  }

  let hasBegun = false
  function begin(signal: NodeJS.Signals): void {
    if (hasBegun) return
    hasBegun = true
    setTimeout(() => {
      for (const each of SIGNALS) process.off(each, begin)
    }, PASSED_ON_WITHIN).unref()
    shutDown(signal).catch((error: unknown) => {
      log.error('shutdown failed', { error })
      process.exitCode = 1
    })
  }
  for (const signal of SIGNALS) process.on(signal, begin)
}
