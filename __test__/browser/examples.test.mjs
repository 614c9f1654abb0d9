// The pages of the examples in a real browser. The page of a server shows the holder of the lock,
// the hand-over when that server is killed, and that nothing is known during an outage. The tests
// leave screenshots in target/screenshots/.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { createLockClient } from 'leasehold'
import { becomes, lists, openPage, saysEmpty, shows } from '../support/browser.mjs'
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

    test('the page shows two servers, and that one continues in order when the other is killed', async (t) => {
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
        await becomes(page, (all) => document.querySelectorAll('#jobs li').length === all, count)
      }
      await addTen()
      await becomes(page, () => document.querySelectorAll('#jobs li.done').length >= 3)
      await page.screenshot({ path: join(SCREENSHOTS, `${name}-1-holds.png`) })

      await anna.signal('SIGKILL')
      await shows(page, '#holder-name', 'ben')
      await shows(page, '#state', 'working')
      await lists(page, '#tenures', ['ben', 'anna'])
      await lists(page, '#waiters', [])
      // The first server may have done all jobs before it was killed.
      await addTen()
      await becomes(page, () => document.querySelector('#jobs li.done[title*="ben"]'))
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
      assert.match(
        jobs.map(({ by }) => by).join(' '),
        /^(anna )+(ben ?)+$/,
        'the second server continues after the first',
      )
      assert.equal(new Set(jobs.map(({ hue }) => hue)).size, 2, 'each server has its colour')
      const { done } = await ben.state()
      assert.deepEqual(
        done.map((entry) => entry.done),
        Array.from({ length: count }, (_, i) => i + 1),
      )

      // Another client holds the lock for adding jobs, so the page shows the refusal.
      assert.deepEqual(faults, [])
      const locks = createLockClient(store)
      atEnd(t, () => locks.close())
      await locks.acquire(`${name}-example-add`)
      await page.getByRole('button', { name: 'Add a job' }).click()
      await becomes(page, () => /Try again in \d+ s/.test(document.querySelector('#message').textContent))
      await page.screenshot({ path: join(SCREENSHOTS, `${name}-3-refused.png`) })
      assert.equal((await ben.state()).count, count)
      // The browser reports every response whose status is not 2xx.
      assert.deepEqual(
        faults.filter((fault) => !fault.includes('423')),
        [],
      )

      await ben.signal('SIGKILL')
      await shows(page, '#state', 'gone')
    })

    /** Starts one server, waits until it works, and opens its page. */
    async function open(t, env, prepare) {
      const server = await startExample(t, 'anna', { folder, words, env })
      await server.reached('working')
      const { page } = await openPage(t, server.url, prepare)
      return { server, page }
    }

    /** Asserts that the page shows the last state only as past. */
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

    test('the page shows that the server is gone, and continues with its successor', async (t) => {
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

    test('while the store is frozen, the page shows that nothing is known, and continues after that', async (t) => {
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

    // The tests below cover only examples/shared, so one example is enough.
    if (name !== 'express') return

    test('while the server is frozen, the page shows that it is gone, and continues after that', async (t) => {
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

    test('the server repeats an unchanged state, so the page does not show that it is gone', async (t) => {
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
      // The page shows a server as gone after 6 s without an event.
      await becomes(page, () => performance.now() - window.begin > 8_000)
      assert.ok(!(await page.evaluate(() => window.links)).includes('gone'))
      await shows(page, '#state', 'working')
    })

    test('before the first state, the page shows that it connects', async (t) => {
      let allowEvents
      const allowed = new Promise((resolve) => {
        allowEvents = resolve
      })
      const { page } = await open(t, embedded(t), (page) =>
        page.route('**/events', async (route) => {
          await allowed
          await route.continue()
        }),
      )
      for (const selector of ['#state', '#holder-name']) {
        assert.equal(await page.locator(selector).textContent(), 'connecting…', selector)
      }
      for (const selector of ['#waiters', '#tenures'])
        assert.equal(await saysEmpty(page, selector), 'connecting…', selector)
      allowEvents()
      await shows(page, '#holder-name', 'anna')
      assert.equal(await saysEmpty(page, '#waiters'), 'nobody')
    })
  })
}
