// The pages of the examples in a real browser: one server's page shows who holds the lock, the
// hand-over when that server is killed, and when the page knows nothing. Leaves screenshots in
// target/screenshots/.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { createLockClient } from 'leasehold'
import { lists, openPage, saysEmpty, shows } from '../support/browser.mjs'
import { atEnd } from '../support/endings.mjs'
import { installExample, startExample } from '../support/examples.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'

const SCREENSHOTS = fileURLToPath(new URL('../../target/screenshots/', import.meta.url))
const FIRST_JOBS = 12

const examples = {
  express: { words: [], build: () => {} },
  remix: {
    words: ['--built'],
    build: (folder) => execFileSync('npx', ['--no-install', 'remix', 'vite:build'], { cwd: folder, stdio: 'pipe' }),
  },
}

for (const [name, { words, build }] of Object.entries(examples)) {
  describe(`examples/${name} in Chromium`, { timeout: 240_000 }, () => {
    let folder

    before(() => {
      folder = installExample(name)
      build(folder)
      mkdirSync(SCREENSHOTS, { recursive: true })
    })

    test('the page shows two servers, the death of one, and the other going on in order', async (t) => {
      const data = temporaryFolder(t)
      const store = `sqlite:${join(data, 'locks.db')}`
      const env = { LEASEHOLD_URL: store, DATA_DIR: data, JOB_MS: '150' }
      const anna = await startExample(t, 'anna', { folder, words, env })
      await anna.reached('working')
      const ben = await startExample(t, 'ben', { folder, words, env })
      await ben.reached('waiting')

      const { page, faults } = await openPage(t, ben.url)
      await shows(page, '#server', 'ben')
      await shows(page, '#state', 'waiting')
      await shows(page, '#holder-name', 'anna')
      await lists(page, '#waiters', ['ben'])
      await lists(page, '#tenures', ['anna'])
      let count = FIRST_JOBS
      const addTen = async () => {
        count += 10
        await page.getByRole('button', { name: 'Add ten' }).click()
        await page.waitForFunction((all) => document.querySelectorAll('#jobs li').length === all, count)
      }
      await addTen()
      await page.waitForFunction(() => document.querySelectorAll('#jobs li.done').length >= 3)
      await page.screenshot({ path: join(SCREENSHOTS, `${name}-1-holds.png`) })

      await anna.signal('SIGKILL')
      await shows(page, '#holder-name', 'ben')
      await shows(page, '#state', 'working')
      await lists(page, '#tenures', ['ben', 'anna'])
      await lists(page, '#waiters', [])
      // However many the first one got done before it was killed.
      await addTen()
      await page.waitForFunction(() => document.querySelector('#jobs li.done[title*="ben"]'))
      await page.screenshot({ path: join(SCREENSHOTS, `${name}-2-handed-over.png`) })

      await shows(page, '#progress', `${count} of ${count} done`)
      const jobs = await page.locator('#jobs li').evaluateAll((all) =>
        all.map(({ textContent, className, title, style }) => ({
          job: Number(textContent),
          isDone: className === 'done',
          by: /^by (\w+)/.exec(title)?.[1],
          hue: style.getPropertyValue('--hue'),
        })),
      )
      assert.deepEqual(
        jobs.map(({ job, isDone }) => isDone && job),
        Array.from({ length: count }, (_, i) => i + 1),
      )
      assert.match(jobs.map(({ by }) => by).join(' '), /^(anna )+(ben ?)+$/, 'first the one, then the other')
      assert.equal(new Set(jobs.map(({ hue }) => hue)).size, 2, 'each in its colour')
      const { done } = await ben.state()
      assert.deepEqual(
        done.map((entry) => entry.done),
        Array.from({ length: count }, (_, i) => i + 1),
      )

      // Somebody else adds jobs, and does not end: the page says what it was told.
      assert.deepEqual(faults, [])
      const locks = createLockClient(store)
      atEnd(t, () => locks.close())
      await locks.acquire(`${name}-example-add`)
      await page.getByRole('button', { name: 'Add a job' }).click()
      await page.waitForFunction(() => /Try again in \d+ s/.test(document.querySelector('#message').textContent))
      await page.screenshot({ path: join(SCREENSHOTS, `${name}-3-refused.png`) })
      assert.equal((await ben.state()).count, count)
      // The browser tells of every answer that is none of 2xx.
      assert.deepEqual(
        faults.filter((fault) => !fault.includes('423')),
        [],
      )

      await ben.signal('SIGKILL')
      await shows(page, '#state', 'gone')
    })

    /** Starts one server that works, and opens its page. */
    async function open(t, env, prepare) {
      const server = await startExample(t, 'anna', { folder, words, env })
      await server.reached('working')
      const { page } = await openPage(t, server.url, prepare)
      return { server, page }
    }

    /** Asserts that the page shows the last state as the past only. */
    async function assertUnknown(page) {
      await shows(page, '#holder-name', 'not known')
      assert.match(await page.locator('#holder-details').textContent(), /^anna at \d/)
      assert.equal(await saysEmpty(page, '#waiters'), 'not known')
      assert.equal(await page.locator('#jobs li.next').count(), 0)
    }

    const embedded = (t) => {
      const data = temporaryFolder(t)
      return { LEASEHOLD_URL: `sqlite:${join(data, 'locks.db')}`, DATA_DIR: data, JOB_MS: '60000' }
    }

    test('when the server dies, the page says so, and goes on when there is one again', async (t) => {
      const env = embedded(t)
      const { server, page } = await open(t, env)
      await shows(page, '#holder-name', 'anna')
      await page.waitForSelector('#jobs li.next')
      await server.signal('SIGKILL')
      await shows(page, '#state', 'gone')
      await shows(page, '#message', 'This server does not answer. The page goes on when it is back.')
      await assertUnknown(page)
      await page.screenshot({ path: join(SCREENSHOTS, `${name}-4-gone.png`) })

      await startExample(t, 'ben', { folder, words, env, port: Number(new URL(server.url).port) })
      await shows(page, '#server', 'ben')
      await shows(page, '#holder-name', 'ben')
      await shows(page, '#state', 'working')
      await shows(page, '#message', '')
      await page.waitForSelector('#jobs li.next')
    })

    test('when the store stands still, the page says that nothing is known, and goes on with it', async (t) => {
      const redis = await startRedis(t)
      const { page } = await open(t, { REDIS_URL: redis.url(), JOB_MS: '60000' })
      await shows(page, '#holder-name', 'anna')
      redis.freeze()
      await shows(page, '#message', 'Something is wrong here. Please try again later.')
      await shows(page, '#state', 'not known')
      await assertUnknown(page)
      redis.thaw()
      await shows(page, '#holder-name', 'anna')
      await shows(page, '#state', 'working')
      await shows(page, '#message', '')
    })

    // The other tests are about examples/shared alone.
    if (name !== 'express') return

    test('when the server stands still, the page says so, and goes on with it', async (t) => {
      const { server, page } = await open(t, embedded(t))
      await shows(page, '#holder-name', 'anna')
      server.freeze()
      await shows(page, '#state', 'gone')
      await assertUnknown(page)
      server.thaw()
      await shows(page, '#state', 'working')
      await shows(page, '#holder-name', 'anna')
      await shows(page, '#message', '')
    })

    test('the server sends an unchanged state again, so that the page does not say that it is gone', async (t) => {
      const { page } = await open(t, embedded(t), (page) =>
        page.addInitScript(() => {
          window.links = []
          const note = () => window.links.push(document.querySelector('main')?.dataset.link)
          new MutationObserver(note).observe(document, {
            subtree: true,
            attributes: true,
            attributeFilter: ['data-link'],
          })
          window.begin = performance.now()
        }),
      )
      await shows(page, '#holder-name', 'anna')
      // Longer than the 6 s after which a silent server is gone.
      await page.waitForFunction(() => performance.now() - window.begin > 8_000)
      assert.ok(!(await page.evaluate(() => window.links)).includes('gone'))
      await shows(page, '#state', 'working')
    })

    test('before the first state, the page says that it connects', async (t) => {
      let goOn
      const told = new Promise((resolve) => {
        goOn = resolve
      })
      const { page } = await open(t, embedded(t), (page) =>
        page.route('**/events', async (route) => {
          await told
          await route.continue()
        }),
      )
      for (const selector of ['#state', '#holder-name']) {
        assert.equal(await page.locator(selector).textContent(), 'connecting…', selector)
      }
      for (const selector of ['#waiters', '#tenures'])
        assert.equal(await saysEmpty(page, selector), 'connecting…', selector)
      goOn()
      await shows(page, '#holder-name', 'anna')
      assert.equal(await saysEmpty(page, '#waiters'), 'nobody')
    })
  })
}
