// The example as its README tells one to use it: two servers, one of which does the jobs, whatever happens to it.

import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { until, within } from '../support/clock.mjs'
import { freePort, startRedis, temporaryFolder } from '../support/servers.mjs'

const EXAMPLE = fileURLToPath(new URL('../../examples/express', import.meta.url))
const FIRST_JOBS = 12

class Server {
  log = ''
  #process

  constructor(id, port, env) {
    this.id = id
    this.url = `http://127.0.0.1:${port}`
    this.#process = spawn(process.execPath, ['server.mjs'], {
      cwd: EXAMPLE,
      env: { ...process.env, NODE_TEST_CONTEXT: undefined, PORT: String(port), WORKER_ID: id, JOB_MS: '20', ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    for (const stream of [this.#process.stdout, this.#process.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => {
        this.log += text
      })
    }
    this.ended = once(this.#process, 'close').then(([code, signal]) => signal ?? code)
  }

  listening() {
    return until(`${this.id} to listen`, () => {
      if (this.#process.exitCode !== null) throw new Error(`${this.id} ended:\n${this.log}`)
      return this.log.includes('Express server started')
    })
  }

  async state() {
    return (await fetch(`${this.url}/state`)).json()
  }

  post(body) {
    return fetch(`${this.url}/jobs`, { method: 'POST', headers: { 'content-type': 'application/json' }, body })
  }

  signal(name) {
    this.#process.kill(name)
    return within(`${this.id} to end`, this.ended)
  }
}

async function startServer(t, id, env) {
  const server = new Server(id, await freePort(), env)
  t.after(() => server.signal('SIGKILL'))
  await server.listening()
  return server
}

const finished = (server, count) =>
  until(`${count} jobs`, async () => {
    const state = await server.state()
    return state.finished >= count && state
  })

const stores = {
  'the embedded store': (t) => {
    const folder = temporaryFolder(t)
    return { LEASEHOLD_URL: `sqlite:${join(folder, 'locks.db')}`, DATA_DIR: folder }
  },
  Redis: async (t) => ({ REDIS_URL: (await startRedis(t)).url() }),
}

describe('examples/express', () => {
  before(() => {
    if (existsSync(join(EXAMPLE, 'node_modules'))) return
    // Without scripts: the checkout, which is one of its dependencies, is built already.
    const args = ['install', '--ignore-scripts', '--no-audit', '--no-fund']
    execFileSync('npm', args, { cwd: EXAMPLE, stdio: 'inherit' })
  })

  for (const [name, open] of Object.entries(stores)) {
    test(`two servers on ${name}: one works, and when it is stopped or killed the other goes on in order`, async (t) => {
      const env = await open(t)
      const servers = [await startServer(t, 'anna', env), await startServer(t, 'ben', env)]
      const states = await until('one to wait', async () => {
        const both = await Promise.all(servers.map((server) => server.state()))
        return both.some(({ server }) => server.state === 'waiting') && both
      })
      assert.deepEqual(states.map(({ server }) => server.state).sort(), ['waiting', 'working'])
      const holder = servers[states.findIndex(({ server }) => server.state === 'working')]
      const other = servers.find((server) => server !== holder)
      for (const state of states) assert.equal(state.holder.name, holder.id)

      // A page that is being looked at must not keep the server from ending.
      const events = await fetch(`${holder.url}/events`)
      const { value } = await events.body.getReader().read()
      assert.match(Buffer.from(value).toString(), /^data: \{.*\}\n\n/)

      assert.equal((await other.post('{"count":40}')).status, 201)
      await finished(other, FIRST_JOBS + 5)
      assert.equal(await holder.signal('SIGTERM'), 0, holder.log)
      assert.match(holder.log, /Lock acquired. Starting work.*Doing some heavy work.*Stop work.*Releasing lock/s)
      await finished(other, FIRST_JOBS + 15)

      const third = await startServer(t, 'cleo', env)
      await other.signal('SIGKILL')
      const { done, tenures, count } = await finished(third, FIRST_JOBS + 40)
      assert.equal(count, FIRST_JOBS + 40)
      const expected = Array.from({ length: count }, (_, i) => i + 1)
      assert.deepEqual(
        done.map((entry) => entry.done),
        expected,
      )
      assert.deepEqual(
        tenures.map(({ tenure }) => tenure),
        ['cleo', other.id, holder.id],
      )
      const fences = done.map(({ fence }) => fence)
      assert.deepEqual(
        fences,
        [...fences].sort((a, b) => a - b),
      )
    })
  }

  test('bad requests are told so, and the page may load nothing from elsewhere', async (t) => {
    const server = await startServer(t, '<b>anna</b>', await stores['the embedded store'](t))
    for (const body of ['{"count":0}', '{"count":101}', '{"count":"1"}', '{}', 'null', '{', '']) {
      const answer = await server.post(body)
      assert.equal(answer.status, 400, body)
      assert.equal(typeof (await answer.json()).error, 'string', body)
    }
    const page = await fetch(server.url)
    assert.equal(page.headers.get('content-security-policy'), "default-src 'self'")
    assert.doesNotMatch(await page.text(), /<script(?![^>]* src=)| on\w+=| style=/)
  })
})
