// The documentation site builds without a warning, has no dead link, loads nothing from another
// host, and fits a narrow and a wide screen. The tests leave screenshots in target/screenshots/.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { openPage } from '../support/browser.mjs'
import { temporaryFolder } from '../support/servers.mjs'
import { serveSite } from '../support/static-site.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const SCREENSHOTS = join(ROOT, 'target', 'screenshots')
const TYPEDOC = join(ROOT, 'node_modules', 'typedoc', 'bin', 'typedoc')
const VIEWS = { narrow: { width: 360, height: 740 }, wide: { width: 1280, height: 800 } }
/** Three pages of different kinds, by the text of their headings. */
const PAGES = {
  'index.html': 'leasehold',
  'docs/operations.html': 'Operations',
  'api/leasehold/LockClient.html': 'Interface LockClient',
}

/** Returns the paths of the pages in `folder`, with the ids and links of each. */
function readPages(folder) {
  const names = readdirSync(folder, { recursive: true }).map((name) => name.replaceAll('\\', '/'))
  return new Map(
    names
      .filter((name) => name.endsWith('.html'))
      .map((name) => {
        const html = readFileSync(join(folder, name), 'utf8')
        const values = (attribute) => [...html.matchAll(attribute)].map(([, value]) => value.replaceAll('&amp;', '&'))
        return [name, { ids: new Set(values(/ id="([^"]*)"/g)), links: values(/ (?:href|src)="([^"]*)"/g), html }]
      }),
  )
}

/** Returns the fault of a link of the page `from`, or undefined. */
function fault(folder, pages, from, link) {
  const [path, anchor] = decodeURI(link).split('#')
  const target = path ? posix.join(posix.dirname(from), path) : from
  if (!existsSync(join(folder, target))) return `${from}: ${link}: no such file`
  const page = pages.get(target)
  if (anchor && page && !page.ids.has(anchor)) return `${from}: ${link}: no such anchor`
}

const isOfOtherHost = (link) => /^(?:[a-z]+:)?\/\//.test(link)
const isInternal = (link) => !isOfOtherHost(link) && !link.startsWith('data:') && link !== '#'

test('documentation site', { timeout: 120_000 }, async (t) => {
  const folder = join(temporaryFolder(t), 'site')
  // package/api.test.mjs makes other pages of the same typings, and reports errors in the typings.
  const words = [TYPEDOC, '--options', join('site', 'typedoc.config.mjs'), '--out', folder, '--skipErrorChecking']
  const { status, stdout, stderr } = spawnSync(process.execPath, words, { cwd: ROOT, encoding: 'utf8' })
  assert.equal(status, 0, `${stdout}${stderr}`)
  const pages = readPages(folder)
  mkdirSync(SCREENSHOTS, { recursive: true })
  const url = await serveSite(t, folder)

  await t.test('each guide and each page of the API reference is a page', () => {
    const guides = readdirSync(join(ROOT, 'docs')).filter((name) => name.endsWith('.md') && name !== 'README.md')
    const api = readdirSync(join(ROOT, 'docs', 'api'), { recursive: true }).filter((name) => /\/\w+\.md$/.test(name))
    assert.ok(guides.length > 10 && api.length > 50)
    const expected = [
      ...guides.map((name) => `docs/${name.replace(/\.md$/, '.html')}`),
      ...['docs/index.html', 'changelog.html', 'contributing.html', 'security.html'],
      ...api
        .filter((name) => !name.endsWith('README.md'))
        .map((name) => `api/${dirname(dirname(name))}/${name.split('/').at(-1).replace(/\.md$/, '.html')}`),
    ]
    assert.deepEqual(
      expected.filter((name) => !pages.has(name)),
      [],
    )
  })

  await t.test('no link is dead, and links to other pages stay on the site', () => {
    const links = [...pages].flatMap(([from, page]) => page.links.filter(isInternal).map((link) => [from, link]))
    assert.ok(links.length > 3_000)
    const faults = links.flatMap(([from, link]) => fault(folder, pages, from, link) ?? [])
    assert.deepEqual([...new Set(faults)], [])
    // Links to Markdown files must be links to their pages.
    assert.deepEqual(
      links.filter(([, link]) => /\.md(?:#|$)/.test(link)),
      [],
    )
  })

  await t.test('comments for the tests are not published', () => {
    const leaks = [...pages].filter(([, { html }]) => /<!-- (?:ts|sql|run|modules)\b/.test(html))
    assert.deepEqual(
      leaks.map(([name]) => name),
      [],
    )
  })

  for (const [view, size] of Object.entries(VIEWS)) {
    await t.test(`three pages, search and dark mode work on a ${view} screen`, async (t) => {
      const foreignRequests = []
      const { page, faults } = await openPage(t, url, async (page) => {
        await page.setViewportSize(size)
        await page.route(
          (address) => !address.href.startsWith(url),
          (route) => {
            foreignRequests.push(route.request().url())
            return route.abort()
          },
        )
      })
      const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor)
      for (const [path, heading] of Object.entries(PAGES)) {
        const shades = []
        await page.goto(`${url}${path}`)
        await page.getByRole('heading', { level: 1, name: heading }).waitFor()
        assert.ok(
          await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth),
          `${path} is wider than ${size.width} px`,
        )
        for (const colorScheme of ['light', 'dark']) {
          await page.emulateMedia({ colorScheme })
          shades.push(await background())
          const name = `site-${path.split('/').at(-1).replace('.html', '')}-${view}-${colorScheme}.png`
          await page.screenshot({ path: join(SCREENSHOTS, name) })
        }
        assert.notEqual(shades[0], shades[1], `${path} ignores the dark mode of the system`)
      }

      await page.getByRole('button', { name: 'Search' }).click()
      await page.locator('#tsd-search-input').fill('hash slot')
      const found = page.locator('#tsd-search-results a').first()
      await found.waitFor()
      await page.screenshot({ path: join(SCREENSHOTS, `site-search-${view}.png`) })
      await found.click()
      await page.waitForURL(/\.html/)
      assert.match(await page.locator('.col-content').textContent(), /hash slot/i)

      await page.goto(url)
      if (view === 'wide') {
        const menu = await page.locator('.site-menu a').evaluateAll((all) => all.map((link) => link.href))
        assert.ok(menu.length > 100)
        const faultsInMenu = menu.flatMap((link) => fault(folder, pages, 'index.html', link.slice(url.length)) ?? [])
        assert.deepEqual(faultsInMenu, [])
        // The choice of the reader overrides the setting of the system.
        const dark = await background()
        await page.getByRole('heading', { name: 'Settings' }).click()
        await page.locator('#tsd-theme').selectOption('light')
        assert.notEqual(await background(), dark)
      }
      assert.deepEqual(faults, [])
      assert.deepEqual(foreignRequests, [])
    })
  }
})
