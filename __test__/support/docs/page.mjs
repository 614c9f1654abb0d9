// A page of the documentation, as a test has to see it: its code blocks, its headings, its links.
//
// What a reader need not see stands in HTML comments on lines of their own:
//   <!-- ts        declarations for the next block: what it uses and does not explain
//   <!-- ts all    the same for every block that follows on the page
//   <!-- sql       statements to run before the next block: the tables that it is about
//   <!-- run       the next block is run; the comment has what it prints, <number> standing for digits
//   <!-- modules   packages that blocks import and that are not installed here: whatever comes of them is `any`

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
const AT_THE_ROOT = ['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md']

/** The pages that people wrote; docs/api/ is made. */
export const pages = () => {
  const guides = readdirSync(join(ROOT, 'docs')).filter((name) => name.endsWith('.md'))
  const names = [...AT_THE_ROOT, ...guides.sort().map((name) => `docs/${name}`)]
  return names.map((name) => readPage(name, readFileSync(join(ROOT, name), 'utf8')))
}

/**
 * The page called `name`. Its `blocks` have a `language`, a `text`, the `line` of the page on which the text begins, and the
 * comments before them as `declarations` and `tables` (each with a `text` and a `line`) and `output`.
 */
export function readPage(name, source) {
  const page = { name, source, blocks: [], modules: [], prose: '' }
  const forAll = []
  let next = { declarations: [], tables: [] }
  const lines = source.split('\n')
  const upTo = (index, isEnd) => {
    const end = lines.findIndex((line, at) => at >= index && isEnd(line))
    if (end < 0) throw new Error(`${name}:${index}: it has no end`)
    return { text: lines.slice(index, end).join('\n'), line: index + 1, end }
  }
  for (let index = 0; index < lines.length; index++) {
    const fence = /^( *)(```+)(\S*)/.exec(lines[index])
    const comment = /^<!-- (ts all|ts|sql|run|modules)\b(.*?)(-->)?$/.exec(lines[index])
    if (fence) {
      const [, indent, ticks, language] = fence
      const { text, line, end } = upTo(index + 1, (one) => one.trim() === ticks)
      const plain = indent ? text.replaceAll(new RegExp(`^${indent}`, 'gm'), '') : text
      page.blocks.push({ page, language, text: plain, line, ...next, declarations: [...forAll, ...next.declarations] })
      next = { declarations: [], tables: [] }
      index = end
    } else if (comment) {
      const [, what, rest, isWhole] = comment
      const { text, line, end } = isWhole
        ? { text: '', line: index + 1, end: index }
        : upTo(index + 1, (one) => one === '-->')
      if (what === 'ts all') forAll.push({ text, line })
      else if (what === 'ts') next.declarations.push({ text, line })
      else if (what === 'sql') next.tables.push({ text, line })
      else if (what === 'run') next.output = text
      else page.modules.push(...rest.trim().split(/\s+/))
      index = end
    } else {
      page.prose += `${lines[index]}\n`
    }
  }
  return page
}

/** The names of a page's headings, as GitHub makes them. */
export const anchors = (page) =>
  [...page.prose.matchAll(/^#+ (.*)$/gm)].map(([, text]) =>
    text
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  )

/** Where a page's links lead, other than to other sites. */
export const links = (page) =>
  [...page.prose.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target]) => target).filter((target) => !/^[a-z]+:/.test(target))
