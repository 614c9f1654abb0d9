// docs/demo.svg, the picture in the README, is drawn from a recording of the demo, and a browser
// shows each line at its time. The tests leave screenshots in target/screenshots/.

import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { record } from '../../scripts/demo-picture.mjs'
import { draw, recordingIn } from '../../scripts/demo-svg.mjs'
import { openPage } from '../support/browser.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const SCREENSHOTS = join(ROOT, 'target', 'screenshots')
const PICTURE = join(ROOT, 'docs', 'demo.svg')
const MAX_BYTES = 60_000
const picture = readFileSync(PICTURE, 'utf8')

/** Returns the texts of the lines that a reader sees at `time`, in ms, or without motion. */
function linesAt(page, time) {
  return page.evaluate((time) => {
    for (const animation of document.getAnimations()) {
      animation.pause()
      animation.currentTime = time
    }
    // `view` is the part of the picture that is not clipped. The box of its contents is larger.
    const view = document.querySelector('.view')
    const [left, above, width, height] = ['x', 'y', 'width', 'height'].map((name) => Number(view.getAttribute(name)))
    const covered = document.querySelector('.cover').getBoundingClientRect().top
    return [...document.querySelectorAll('text')].flatMap((line) => {
      const { top, bottom, right } = line.getBoundingClientRect()
      const middle = (top + bottom) / 2
      if (line.textContent === '' || middle > covered || middle < above || middle > above + height) return []
      if (right > left + width) throw new Error(`"${line.textContent}" is cut off`)
      return [[...line.children].map((part) => part.textContent).join(' ')]
    })
  }, time)
}

const open = (t, path, reducedMotion) =>
  openPage(t, pathToFileURL(path).href, (page) => page.emulateMedia({ reducedMotion }))

describe('picture of the demo', { timeout: 60_000 }, () => {
  test('each line appears at its time and scrolls away, and the last lines show without motion', async (t) => {
    const lines = Array.from({ length: 40 }, (_, i) => [(i + 1) * 100, `line ${i}`])
    lines[1][1] = '\x1b[1;36ma <b> & "c"\x1b[0m   \x1b[2m&lt;\x1b[0m'
    const recording = { command: 'npm run <x>', lines }
    const file = join(temporaryFolder(t), 'picture.svg')
    writeFileSync(file, draw(recording))
    assert.deepEqual(recordingIn(draw(recording)), recording)

    const { page } = await open(t, file, 'no-preference')
    // An SVG that is not well-formed shows an error of the browser instead.
    assert.equal(await page.locator('parsererror').count(), 0)
    assert.deepEqual(await linesAt(page, 0), ['$ npm run <x>'])
    assert.deepEqual(await linesAt(page, 250), ['$ npm run <x>', 'line 0', 'a <b> & "c" &lt;'])
    const late = await linesAt(page, 3_950)
    assert.deepEqual([late.at(-1), late.includes('line 0')], ['line 38', false])
    const end = await linesAt(page, 10_000)
    assert.equal(end.at(-1), 'line 39')
    assert.equal(await page.evaluate(() => document.getAnimations().length), 2)

    const { page: still } = await open(t, file, 'reduce')
    assert.equal(await still.evaluate(() => document.getAnimations().length), 0)
    assert.deepEqual(await linesAt(still), end)
  })

  test('a recording has the lines of a program with their times and colours', async () => {
    const script = `console.log(String(process.stdout.isTTY)); setTimeout(() => console.log('\\x1b[32mlate'), 300)`
    const { command, lines } = await record('try it', ['-e', script])
    assert.equal(command, 'try it')
    assert.deepEqual(
      lines.map(([, text]) => text),
      ['true', '\x1b[32mlate'],
    )
    const passed = lines[1][0] - lines[0][0]
    assert.ok(passed >= 250, `${passed} ms`)
    await assert.rejects(record('try it', ['-e', 'process.exit(3)']), /try it ended with code 3/)
  })

  test('the picture in the README is drawn from a recording of the demo, small, and loads nothing else', async (t) => {
    const recording = recordingIn(picture)
    assert.ok(picture === draw(recording), 'docs/demo.svg is out of date: run `npm run docs:demo` and commit it')
    assert.ok(Buffer.byteLength(picture) < MAX_BYTES)
    assert.equal(recording.command, 'npm run demo')
    assert.deepEqual(picture.match(/https?:[^"]*/g), ['http://www.w3.org/2000/svg'])
    assert.match(readFileSync(join(ROOT, 'README.md'), 'utf8'), /^!\[[^\]]{20,}\]\(docs\/demo\.svg\)$/m)

    mkdirSync(SCREENSHOTS, { recursive: true })
    const { page, faults } = await open(t, PICTURE, 'no-preference')
    const middle = await linesAt(page, recording.lines.at(-1)[0] / 2)
    assert.ok(middle.some((line) => /job \d+ done$/.test(line)))
    await page.screenshot({ path: join(SCREENSHOTS, 'demo-1-middle.png') })
    const end = await linesAt(page, recording.lines.at(-1)[0] + 1)
    assert.equal(end.at(-1), '30 jobs by 3 processes: no job was lost, doubled or out of order.')
    await page.screenshot({ path: join(SCREENSHOTS, 'demo-2-end.png') })
    assert.deepEqual(faults, [])
  })
})
