// The pages of the examples in a real browser: one server's page shows who holds the lock, and the hand-over when that one is
// killed. Screenshots are left in target/screenshots/.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { createLockClient } from 'leasehold'
import { chromium } from 'playwright-core'
import { findChromium } from '../support/chromium.mjs'
import { atEnd } from '../support/endings.mjs'
import { installExample, startExample } from '../support/examples.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const SCREENSHOTS = fileURLToPath(new URL('../../target/screenshots/', import.meta.url))
const FIRST_JOBS = 12

/** It asks nobody but the servers under test, and starts with an empty profile of its own. */
const QUIET = [
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]

const examples = {
  express: { words: [], build: () => {} },
  remix: {
    words: ['--built'],
    build: (folder) => execFileSync('npx', ['--no-install', 'remix', 'vite:build'], { cwd: folder, stdio: 'pipe' }),
  },
}

async function openPage(t, url) {
  const browser = await chromium.launch({ executablePath: findChromium(), args: QUIET, chromiumSandbox: false })
  atEnd(t, () => browser.close())
  const page = await browser.newPage({ viewport: { width: 1000, height: 720 } })
  const faults = []
  page.on('pageerror', (error) => faults.push(error.message))
  page.on('console', (message) => {
    if (message.type() === 'error') faults.push(message.text())
  })
  page.setDefaultTimeout(15_000)
  await page.goto(url)
  return { page, faults }
}

/** Resolves when the element shows exactly that. */
const shows = (page, selector, text) =>
  page.waitForFunction(([where, what]) => document.querySelector(where)?.textContent === what, [selector, text])

/** Resolves when the list's items, each without the time before it, are these. */
const lists = (page, selector, names) =>
  page.waitForFunction(
    ([where, what]) =>
      [...document.querySelectorAll(`${where} li`)].map((item) => item.textContent.split(/\s/).at(-1)).join() === what,
    [selector, names.join()],
  )

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
  })
}
