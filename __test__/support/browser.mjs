// Opens pages in Chromium.

import { after } from 'node:test'
import { chromium } from 'playwright-core'
import { findChromium } from './chromium.mjs'
import { atEnd } from './endings.mjs'

/**
 * The flags of Chromium: it connects only to the servers under test, and starts with an empty
 * profile.
 */
const QUIET = [
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]

/** The browser of all tests of a file. To start one takes more than a second of processor time. */
let launched
after(async () => (await launched)?.close())

/**
 * Opens the page at `url`, after `prepare(page)`. The page has cookies and a cache of its own.
 * Returns the page, and its errors so far.
 */
export async function openPage(t, url, prepare = () => {}) {
  launched ??= chromium.launch({ executablePath: findChromium(), args: QUIET, chromiumSandbox: false })
  const browser = await launched
  // Animations would keep a processor busy.
  const page = await browser.newPage({ viewport: { width: 1000, height: 720 }, reducedMotion: 'reduce' })
  atEnd(t, () => page.close())
  const faults = []
  page.on('pageerror', (error) => faults.push(error.message))
  page.on('console', (message) => {
    if (message.type() === 'error') faults.push(message.text())
  })
  page.setDefaultTimeout(15_000)
  await prepare(page)
  await page.goto(url)
  return { page, faults }
}

/**
 * Resolves when `isSo(argument)` is true in the page. Without `polling`, Playwright would call
 * `isSo` in each animation frame, and the page would draw 60 frames a second.
 */
export const becomes = (page, isSo, argument) => page.waitForFunction(isSo, argument, { polling: 50 })

/** Resolves when the element shows exactly this text. */
export const shows = (page, selector, text) =>
  becomes(page, ([where, what]) => document.querySelector(where)?.textContent === what, [selector, text])

/** Resolves when the list has these items, without their times. */
export const lists = (page, selector, names) =>
  becomes(
    page,
    ([where, what]) =>
      [...document.querySelectorAll(`${where} li`)].map((item) => item.textContent.split(/\s/).at(-1)).join() === what,
    [selector, names.join()],
  )

/** Returns the text of an empty list. */
export const saysEmpty = (page, selector) =>
  page.locator(selector).evaluate((list) => JSON.parse(getComputedStyle(list, '::after').content))
