import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base'
import express, { type Request as ExpressRequest } from 'express'
import { createLockClient, type Lease, type LockClient, LockLostError } from 'leasehold'
import { lockRequest } from 'leasehold/express'
import { instrument } from 'leasehold/otel'
import { collect } from 'leasehold/prometheus'
import { withRequestLock } from 'leasehold/remix'
import { Registry } from 'prom-client'

function check(holds: boolean, what: string): void {
  if (!holds) throw new Error(what)
}

async function exercise(locks: LockClient): Promise<number> {
  const first: Lease = await locks.acquire('exercise', { ttl: 30_000 })
  check((await locks.tryAcquire('exercise')) === null, 'the lock is held')
  await first.renew(60_000)
  check(first.remaining > 30_000, 'the lease was renewed')
  check(await first.release(), 'the lease was released')

  const lost = await locks.acquire('exercise', { ttl: 200, autoRenew: false })
  const fence: number = await locks.withLock('exercise', (lease) => lease.fence)
  check(!lost.isHeld && lost.signal.reason instanceof LockLostError, 'the lease was lost')
  return fence - first.fence
}

/**
 * Sends a request to an Express server whose handler needs a lock, and one while the lock is held.
 */
async function serveExpress(locks: LockClient): Promise<void> {
  const app = express()
  const locked = lockRequest(locks, { key: ({ params }: ExpressRequest) => `order:${params.id}`, wait: 0 })
  app.get('/orders/:id', locked, (request, response) => {
    response.json(request.lease?.key)
  })
  const server = app.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/orders/7`
  check((await (await fetch(url)).json()) === 'order:7', 'the request was served under its lock')
  const status = await locks.withLock('order:7', async () => (await fetch(url)).status)
  check(status === 423, `with the lock taken: ${status}`)
  server.close()
  server.closeAllConnections()
}

/** Calls an action that needs a lock, and calls it while the lock is held. */
async function serveRemix(locks: LockClient): Promise<void> {
  const key = ({ params }: { request: Request; params: { id: string } }) => `order:${params.id}` as const
  const action = withRequestLock(locks, { key, wait: 0 }, (lease, { params }) => {
    const fence: number = lease.fence
    return Response.json({ fence, id: params.id })
  })
  const send = () => action({ request: new Request('http://host/', { method: 'POST' }), params: { id: '7' } })
  const { id, fence } = (await (await send()).json()) as { id: string; fence: number }
  check(id === '7' && fence > 0, `order ${id} under fence ${fence}`)
  const { status } = await locks.withLock('order:7', send)
  check(status === 423, `with the lock taken: ${status}`)
}

const locks = createLockClient('memory:install')
const register = new Registry()
const exporter = new InMemorySpanExporter()
const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
collect(locks, { register, labels: { service: 'install' } })
const instrumentation = instrument(locks, { tracerProvider })

check((await exercise(locks)) > 0, 'fences grow')
// These functions are for the compiler, and never called: the types must not be `any`.
// @ts-expect-error a key is a string.
export const refused = () => locks.acquire(42)
// @ts-expect-error a key function returns keys.
export const keyless = () => lockRequest(locks, { key: () => 42 })
// @ts-expect-error
export const handless = () => withRequestLock(locks, { key: () => 42 }, () => new Response())
// @ts-expect-error labels are strings.
export const unlabelled = () => collect(locks, { labels: { service: 42 } })
// @ts-expect-error
export const untraced = () => instrument(locks, { tracerProvider: 42 })
await serveExpress(locks)
await serveRemix(locks)

const metrics = await register.metrics()
check(/^leasehold_lost_total\{(?=.*service="install").*reason="expired".*\} 1$/m.test(metrics), metrics)
const spans = exporter.getFinishedSpans().map(({ name }) => name)
for (const name of ['acquire', 'hold', 'renew', 'release'].map((what) => `leasehold ${what}`)) {
  check(spans.includes(name), `a span ${name}, in ${spans}`)
}
instrumentation.disable()
await locks.close()
console.log('exercised')
