// Builds examples/service as its Dockerfile does, and starts it as its image does.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { createServer } from 'node:http'
import { json } from 'node:stream/consumers'
import { after, before, beforeEach, describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { parse } from 'yaml'
import { Balancer } from '../support/balancer.mjs'
import { until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { freePort } from '../support/ports.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'
import { beginGet, buildService, launchServer, readService, seriesValue, startServer } from '../support/service.mjs'

/** A wait that is long enough for every request of a test. */
const LONG_WAIT = { LOCK_WAIT_MS: '20000' }

/**
 * Resolves when the logs of the servers have `count` requests. A server logs a request after its
 * response.
 */
function linesOf(servers, count) {
  const lines = () => servers.flatMap((server) => server.all('request'))
  return until(`the lines of ${count} requests`, () => lines().length === count && lines())
}

describe('examples/service', { timeout: 280_000 }, () => {
  const endings = []
  let image
  let redis
  let env
  let database = 0

  before(async () => {
    const t = { after: (ending) => endings.push(ending) }
    image = await buildService(temporaryFolder(t))
    redis = await startRedis(t)
  })
  beforeEach(() => {
    // The locks of a killed server are free only after their ttl.
    database += 1
    env = { REDIS_URL: `${redis.url()}/${database}`, PAYMENT_MS: '50' }
  })
  after(async () => {
    for (const ending of endings.reverse()) await ending()
  })

  test('the service compiles under strict, and the image has only the program and its dependencies', () => {
    const { compilerOptions } = JSON.parse(readService('tsconfig.json'))
    assert.equal(compilerOptions.strict, true)
    assert.equal(compilerOptions.skipLibCheck, undefined)
    const { dependencies, devDependencies } = JSON.parse(readService('package.json'))
    for (const name of Object.keys(dependencies)) assert.ok(existsSync(image.at(`node_modules/${name}`)), name)
    for (const name of [...Object.keys(devDependencies), '../src', '../.env', '../README.md']) {
      assert.ok(!existsSync(image.at(`node_modules/${name}`)), name)
    }
    const [program, entry] = image.command
    assert.equal(program, 'node')
    assert.ok(existsSync(image.at(entry)), entry)
  })

  test('requests for one order are served one at a time by two servers, so it is charged once', async (t) => {
    const servers = await Promise.all(
      ['anna', 'ben'].map((name) => startServer(t, image, name, { ...env, ...LONG_WAIT })),
    )
    const orders = ['a-1', 'a-2', 'a-3']
    const requests = orders.flatMap((order) => Array.from({ length: 8 }, (_, i) => servers[i % 2].pay(order)))
    const answers = await Promise.all(requests)
    const statuses = answers.map(({ status }) => status).sort()
    assert.deepEqual(statuses, [...Array(21).fill(200), ...Array(3).fill(201)])
    const payments = await Promise.all(answers.map((answer) => answer.json()))
    assert.equal(new Set(payments.map(({ receipt }) => receipt)).size, orders.length)

    const served = await linesOf(servers, answers.length)
    const charges = servers.flatMap((server) => server.all('charging').map(({ order }) => order))
    assert.deepEqual(charges.sort(), orders)
    const fences = served.filter(({ path }) => path === '/orders/a-1/pay')
    assert.equal(new Set(fences.map(({ fence }) => fence)).size, 8, 'each request had its own lease')

    let metrics
    const sum = (name, labels) => metrics.reduce((all, each) => all + seriesValue(each, name, labels), 0)
    await until('the metrics', async () => {
      metrics = await Promise.all(servers.map(async ({ url }) => (await fetch(`${url}/metrics`)).text()))
      return sum('leasehold_hold_seconds_count', { outcome: 'released' }) >= answers.length
    })
    assert.ok(sum('leasehold_acquires_total', { outcome: 'acquired', mode: 'exclusive' }) >= answers.length)
    assert.ok(sum('leasehold_contended_total') > 0)
    const route = { method: 'POST', route: '/orders/:id/pay' }
    assert.equal(sum('http_request_duration_seconds_count', { ...route, status: '201' }), 3)
    assert.equal(sum('http_request_duration_seconds_count', { ...route, status: '200' }), 21)

    // The worker of one server sends each receipt once.
    const sent = () => servers.flatMap((server) => server.all('receipt sent').map(({ receipt }) => receipt))
    await until('the receipts', () => sent().length >= orders.length)
    assert.deepEqual(new Set(sent()), new Set(payments.map(({ receipt }) => receipt)))
    assert.equal(servers.filter((server) => server.all('receipt sent').length > 0).length, 1)
  })

  test('SIGTERM during a request of 2 s follows the recipe, cuts off no request, and allows no overlap', async (t) => {
    const slow = { ...env, ...LONG_WAIT, PAYMENT_MS: '2000' }
    const anna = await startServer(t, image, 'anna', slow)
    await anna.said('receipt worker', { state: 'working' })
    const ben = await startServer(t, image, 'ben', slow)
    await ben.said('receipt worker', { state: 'waiting' })
    const locks = createLockClient(env.REDIS_URL)
    atEnd(t, () => locks.close())
    assert.equal((await fetch(`${anna.url}/health/ready`)).status, 200)

    const first = anna.pay('b-1')
    await anna.said('charging')
    const second = ben.pay('b-1')
    await until('ben to wait', async () => (await locks.inspect('order:b-1')).waiters.length === 1)
    // A probe of the orchestrator may be in flight.
    const [finishReady, finishLive] = await Promise.all(
      ['ready', 'live'].map((probe) => beginGet(t, `${anna.url}/health/${probe}`)),
    )
    anna.signal('SIGTERM')
    await anna.said('shutting down')
    // npm passes on a signal that its process group has got already.
    anna.signal('SIGTERM')
    assert.match(await finishReady(), /^HTTP\/1\.1 503 .*^connection: close\r$.*\{"ready":false\}$/ims)
    assert.match(await finishLive(), /^HTTP\/1\.1 200 .*\{"alive":true\}$/s)
    await assert.rejects(fetch(`${anna.url}/health/ready`), ({ cause }) => cause.code === 'ECONNREFUSED')

    assert.equal((await first).status, 201, 'the request is not cut off')
    const paid = await (await first).json()
    assert.equal((await second).status, 200)
    assert.deepEqual(await (await second).json(), paid)
    assert.equal(await anna.end(), 0, anna.log)
    const own = anna.lines.map(({ message }) => message).filter((message) => !/receipt|charging/.test(message))
    assert.deepEqual(own, [
      'listening',
      'shutting down',
      'charged',
      'request',
      'server closed',
      'work ended',
      'stopped',
    ])
    const since = (message) => Date.parse(anna.all(message)[0].time) - Date.parse(anna.all('shutting down')[0].time)
    assert.ok(since('charged') > 500, 'the signal came during the request')
    assert.ok(since('stopped') < 9_000, 'the server did not wait for its limit')
    assert.equal(ben.all('charging').length, 0)
    assert.ok((await ben.said('request')).fence > anna.all('request')[0].fence)

    // The worker released its lock after the server closed, and ben continues.
    const { time } = await ben.said('receipt worker', { state: 'working' })
    assert.ok(time >= anna.all('server closed')[0].time)
    await until('the receipt', () => [anna, ben].some((server) => server.all('receipt sent').length > 0))
    ben.signal('SIGINT')
    assert.equal(await ben.end(), 0, ben.log)
    assert.deepEqual([anna.stderr, ben.stderr], ['', ''])
  })

  test('a server that is restarted under load loses no request', async (t) => {
    const servers = await Promise.all(
      ['anna', 'ben'].map((name) => startServer(t, image, name, { ...env, ...LONG_WAIT })),
    )
    const balancer = new Balancer()
    atEnd(t, () => balancer.close())
    balancer.ports = servers.map(({ url }) => Number(new URL(url).port))
    const orders = Array.from({ length: 60 }, (_, i) => `c-${i}`)
    const answers = orders.map((order, i) =>
      // A request starts every 20 ms.
      new Promise((resolve) => setTimeout(resolve, i * 20)).then(() => balancer.post(`/orders/${order}/pay`)),
    )
    await servers[0].said('charged')
    servers[0].signal('SIGTERM')
    const statuses = (await Promise.all(answers)).map(({ status }) => status)
    assert.deepEqual([...new Set(statuses)], [201])
    assert.equal(await servers[0].end(), 0, servers[0].log)
    await linesOf(servers, orders.length)
    const charges = servers.flatMap((server) => server.all('charging').map(({ order }) => order))
    assert.deepEqual(charges.sort(), orders.toSorted())
  })

  test('an error response has a status, and no details of locks and stores', async (t) => {
    const store = await startRedis(t)
    const server = await startServer(t, image, 'anna', { ...env, REDIS_URL: store.url(), LOCK_WAIT_MS: '100' })
    const locks = createLockClient(store.url())
    atEnd(t, () => locks.close())
    const lease = await locks.acquire('order:d-1')
    const busy = await server.pay('d-1')
    assert.equal(busy.status, 423)
    assert.match(busy.headers.get('retry-after'), /^\d+$/)
    await lease.release()

    const secret = new RegExp(`${store.port}|127\\.|redis|leasehold|lock:|    at |node_modules`, 'i')
    for (const [path, status] of [
      ['/orders/a%20b/pay', 404],
      [`/orders/${'x'.repeat(65)}/pay`, 404],
      ['/orders/%E0%A4%A/pay', 400],
      ['/nothing', 404],
    ]) {
      const answer = await fetch(`${server.url}${path}`, { method: 'POST' })
      assert.equal(answer.status, status, path)
      assert.doesNotMatch(await answer.text(), secret)
    }
    await server.said('request', { path: '/nothing' })
    assert.deepEqual(server.all('request failed'), [])

    await store.kill()
    const unavailable = await server.pay('d-2')
    assert.equal(unavailable.status, 503)
    assert.match(unavailable.headers.get('retry-after'), /^\d+$/)
    assert.deepEqual(await unavailable.json(), { title: 'Service Unavailable', status: 503 })
    const read = await fetch(`${server.url}/orders/d-2/payment`)
    assert.equal(read.status, 500)
    assert.doesNotMatch(await read.text(), secret)
    const line = await server.said('request failed')
    assert.equal(line.error.code, 'ERR_STORE_UNAVAILABLE', 'the log has the error')
    for (const probe of ['live', 'ready']) assert.equal((await fetch(`${server.url}/health/${probe}`)).status, 200)

    await store.restart()
    await until('the order to be paid', async () => (await server.pay('d-2')).status === 201)
    server.signal('SIGTERM')
    assert.equal(await server.end(), 0, server.log)
  })

  test('the service names wrong settings in one line, without a password, and does not start', async (t) => {
    const wrong = { PORT: '0x50', LOCK_WAIT_MS: '-1', REDIS_URL: 'http://me:secret@127.0.0.1' }
    const start = async (env) => {
      const server = await launchServer(t, image, 'anna', env)
      assert.equal(await server.end(), 1, server.log)
      assert.doesNotMatch(server.log, /secret/)
      assert.deepEqual([server.lines.length, server.all('not started').length], [1, 1], server.log)
      return server.lines[0].error.message
    }
    const all = await start(wrong)
    assert.match(all, /PORT is "0x50", and must be a whole number from 1 to 65535/)
    assert.match(all, /REDIS_URL must be a URL that begins with redis:\/\/.*LOCK_WAIT_MS is "-1"/)
    assert.match(await start({ REDIS_URL: '' }), /^.*: REDIS_URL is missing: set it to/)
    assert.match(await start({ ...env, REPORT_CRON: 'daily' }), /daily/)
    const unreachable = { ...env, REDIS_URL: `redis://:secret@127.0.0.1:${await freePort()}` }
    assert.match(await start(unreachable), /can't be reached/)
    const server = await startServer(t, image, 'ben', env)
    assert.match(await start({ ...env, PORT: new URL(server.url).port }), /EADDRINUSE/)
  })

  test('one of two servers writes the report of each tick', async (t) => {
    const often = { ...env, REPORT_CRON: '* * * * * *' }
    const servers = await Promise.all(['anna', 'ben'].map((name) => startServer(t, image, name, often)))
    const ticks = () => servers.flatMap((server) => server.all('report').map(({ tick }) => tick))
    await until('three reports', () => ticks().length >= 3)
    for (const server of servers) server.signal('SIGTERM')
    for (const server of servers) assert.equal(await server.end(), 0, server.log)
    assert.equal(new Set(ticks()).size, ticks().length, ticks().join())
    assert.equal(servers.flatMap((server) => server.all('report failed')).length, 0)
  })

  test('with a collector of OpenTelemetry, spans of locks are children of spans of requests', async (t) => {
    const spans = []
    const collector = createServer(async (request, response) => {
      const { resourceSpans } = await json(request)
      spans.push(...resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans)))
      response.setHeader('content-type', 'application/json').end('{}')
    }).listen(0, '127.0.0.1')
    await new Promise((resolve) => collector.once('listening', resolve))
    atEnd(t, () => collector.close())
    const endpoint = `http://127.0.0.1:${collector.address().port}`
    const server = await startServer(t, image, 'anna', { ...env, OTEL_EXPORTER_OTLP_ENDPOINT: endpoint })
    const traceId = '0af7651916cd43dd8448eb211c80319c'
    const headers = { traceparent: `00-${traceId}-b7ad6b7169203331-01` }
    const answer = await fetch(`${server.url}/orders/e-1/pay`, { method: 'POST', headers })
    assert.equal(answer.status, 201)
    server.signal('SIGTERM')
    assert.equal(await within('the end of the server', server.ended), 0, server.log)
    const own = spans.filter((span) => span.traceId === traceId)
    const request = own.find(({ name }) => name === 'POST /orders/:id/pay')
    assert.equal(request?.parentSpanId, 'b7ad6b7169203331', JSON.stringify(spans.map(({ name }) => name)))
    for (const name of ['leasehold acquire', 'leasehold hold']) {
      assert.equal(own.find((span) => span.name === name)?.parentSpanId, request.spanId, name)
    }
  })

  test('the health check of the compose file passes while a server is ready, and fails after its end', async (t) => {
    const { services } = parse(readService('docker-compose.yml'))
    const server = await startServer(t, image, 'anna', env)
    const [kind, , ...words] = services.service.healthcheck.test
    assert.equal(kind, 'CMD')
    const check = async () => {
      const checker = spawn(
        process.execPath,
        words.map((word) => word.replace('3000', new URL(server.url).port)),
      )
      return within('the check', new Promise((resolve) => checker.once('exit', resolve)))
    }
    assert.equal(await check(), 0)
    server.signal('SIGKILL')
    await server.end()
    assert.equal(await check(), 1)
  })
})
