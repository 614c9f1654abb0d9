// The example as its README tells one to use it: several servers, one of which does the jobs, whatever happens to it.

import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { until, within } from '../support/clock.mjs'
import { freePort } from '../support/ports.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'

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
  let Jobs
  let openJournal

  before(async () => {
    if (!existsSync(join(EXAMPLE, 'node_modules'))) {
      execFileSync('npm', ['install', '--no-audit', '--no-fund'], { cwd: EXAMPLE, stdio: 'inherit' })
    }
    ;({ Jobs } = await import('../../examples/express/jobs.mjs'))
    ;({ openJournal } = await import('../../examples/express/journal.mjs'))
  })

  for (const [name, open] of Object.entries(stores)) {
    test(`servers on ${name}: one works, and when it is stopped or killed another goes on in order`, async (t) => {
      const env = await open(t)
      const servers = await Promise.all(['anna', 'ben', 'cleo'].map((id) => startServer(t, id, env)))
      /** The server that holds the lock, taken out of the list; all that live must agree on it. */
      const takeHolder = async () => {
        const states = await until('one to work and the others to wait', async () => {
          const all = await Promise.all(servers.map((server) => server.state()))
          const waiting = all.filter(({ server }) => server.state === 'waiting').length
          return waiting === all.length - 1 && all.some(({ server }) => server.state === 'working') && all
        })
        const [holder] = servers.splice(
          states.findIndex(({ server }) => server.state === 'working'),
          1,
        )
        for (const state of states) assert.equal(state.holder.name, holder.id)
        return holder
      }
      const first = await takeHolder()

      // A page that is being looked at must not keep the server from ending.
      const events = await fetch(`${first.url}/events`)
      const { value } = await events.body.getReader().read()
      assert.match(Buffer.from(value).toString(), /^data: \{.*\}\n\n/)

      assert.equal((await servers[0].post('{"count":100}')).status, 201)
      const count = FIRST_JOBS + 100
      await finished(first, FIRST_JOBS + 5)
      assert.equal(await first.signal('SIGTERM'), 0, first.log)
      assert.match(first.log, /Lock acquired. Starting work.*Doing some heavy work.*Stop work.*Releasing lock/s)

      const second = await takeHolder()
      await finished(second, FIRST_JOBS + 15)
      await second.signal('SIGKILL')

      const [third] = servers
      await finished(third, count)
      const jobs = new Jobs(await openJournal({ redisUrl: env.REDIS_URL, dataDir: env.DATA_DIR }))
      const { done, tenures } = await jobs.list()
      await jobs.close()
      assert.deepEqual(
        done.map((entry) => entry.done),
        Array.from({ length: count }, (_, i) => i + 1),
      )
      assert.deepEqual(
        tenures.map(({ tenure }) => tenure),
        [first.id, second.id, third.id],
      )
      const fences = done.map(({ fence }) => fence)
      assert.deepEqual(
        fences,
        fences.toSorted((a, b) => a - b),
      )
      assert.deepEqual(
        [...new Set(fences)],
        tenures.map(({ fence }) => fence),
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
