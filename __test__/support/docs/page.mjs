// Parses a page of the documentation into code blocks, headings and links.
//
// HTML comments on lines of their own have what a reader need not see:
//   <!-- ts        declarations for the next block: names that it uses and does not explain
//   <!-- ts all    the same for all later blocks of the page
//   <!-- sql       statements to run before the next block, which create its tables
//   <!-- run       the next block is run; the comment has its output (<number> stands for digits)
//   <!-- modules   packages of blocks that are not installed here; their types are `any`

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
const AT_THE_ROOT = ['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md']

/** Returns the pages that people wrote. docs/api/ is generated. */
export const pages = () => {
  const guides = readdirSync(join(ROOT, 'docs')).filter((name) => name.endsWith('.md'))
  const names = [...AT_THE_ROOT, ...guides.sort().map((name) => `docs/${name}`)]
  return names.map((name) => readPage(name, readFileSync(join(ROOT, name), 'utf8')))
}

/**
 * Parses the page called `name`. Its `blocks` have a `language`, a `text`, the `line` of the page
 * on which the text begins, and the comments before them as `declarations` and `tables` (each with
 * a `text` and a `line`) and `output`.
 */
export function readPage(name, source) {
  const page = { name, source, blocks: [], modules: [], prose: '' }
  const forAll = []
  let next = { declarations: [], tables: [] }
  const lines = source.split('\n')
  const upTo = (index, isEnd) => {
    const end = lines.findIndex((line, at) => at >= index && isEnd(line))
    if (end < 0) throw new Error(`${name}:${index}: the block has no end`)
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

/** Returns the names of a page's headings, as GitHub makes them. */
export const anchors = (page) =>
  [...page.prose.matchAll(/^#+ (.*)$/gm)].map(([, text]) =>
    text
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  )

/** Returns the targets of a page's links, without links to other sites. */
export const links = (page) =>
  [...page.prose.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target]) => target).filter((target) => !/^[a-z]+:/.test(target))
