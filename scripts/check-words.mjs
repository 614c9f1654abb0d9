// Checks what a machine can see of the rules for words and sentences: words that the project no
// longer uses, constructions that make a reader stop, the width of comments, and the length of
// sentences in the documents. words.txt has the lists. A reader has to check the other rules.

import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const MAX_COMMENT_WIDTH = 100
/** If this is larger, sentences that have to be read twice get in; if it is smaller, lists fail. */
const MAX_SENTENCE_WORDS = 45

const SOURCES = ['src', 'lib', 'tests', '__test__', 'scripts', 'bench', 'examples', 'site', 'types', 'index.d.ts']
const DOCUMENTS = ['README.md', 'CONTRIBUTING.md', 'SECURITY.md', 'docs']
/** Matches generated files, and texts that others wrote. */
const IGNORED =
  /^docs\/api\/|^tests\/corpus\/|\.snapshot$|^scripts\/(words\.txt|check-words\.mjs)$|\.(svg|json|lock|png)$/

const tracked = (paths) =>
  execFileSync('git', ['ls-files', '-z', '--', ...paths], { cwd: ROOT, encoding: 'utf8' })
    .split('\0')
    .filter((path) => path !== '' && !IGNORED.test(path))
const textOf = (path) => readFileSync(`${ROOT}/${path}`, 'utf8')

/** Parses words.txt. A line has a pattern, what to write instead, and optionally the paths. */
function readWords() {
  return textOf('scripts/words.txt')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => {
      const [pattern, instead, paths] = line.split('\t')
      return { pattern: new RegExp(pattern), instead, paths: paths?.split(' ') ?? ['src', 'tests'] }
    })
}

const isBelow = (path, folder) => folder === '*' || path === folder || path.startsWith(`${folder}/`)
const faults = []
const sources = tracked(SOURCES)
const documents = tracked(DOCUMENTS)
const words = readWords()

for (const path of [...sources, ...documents]) {
  const rules = words.filter(({ paths }) => paths.some((folder) => isBelow(path, folder)))
  textOf(path)
    .split('\n')
    .forEach((line, i) => {
      for (const { pattern, instead } of rules) {
        const found = pattern.exec(line)?.[0]
        if (found !== undefined) faults.push(`${path}:${i + 1}: "${found.trim()}": write ${instead}`)
      }
    })
}

/** How a line of a comment begins; in other languages, it may also begin with `*`. */
const COMMENTS = { lua: /^\s*--/, rs: /^\s*\/\// }

for (const path of sources.filter((path) => /\.(rs|ts|mts|js|mjs|cjs|lua|c)$/.test(path))) {
  let isExample = false
  textOf(path)
    .split('\n')
    .forEach((line, i) => {
      const isComment = (COMMENTS[path.split('.').pop()] ?? /^\s*(\/\/|\/?\*)/).test(line)
      isExample = isComment && (/^\s*\* @example/.test(line) || (isExample && !/^\s*\* @/.test(line)))
      // A link has no place to break, and code has its own width.
      if (isComment && !isExample && line.length > MAX_COMMENT_WIDTH && !/\bhttps?:\/\/\S{40,}/.test(line)) {
        faults.push(`${path}:${i + 1}: this comment has ${line.length} columns; wrap it at ${MAX_COMMENT_WIDTH}`)
      }
    })
}

/** Returns the prose of a Markdown text: no code, tables, headings, comments or addresses. */
const proseOf = (text) =>
  text
    .replace(/<!--[\s\S]*?-->/g, '')
    .replace(/^(```|~~~)[\s\S]*?^\1/gm, '\n')
    .replace(/^(\||#|\[).*$/gm, '\n')
    .replace(/\]\([^)]*\)/g, ']')
    .replace(/`[^`]*`/g, 'code')
    .replace(/^\s*([-*]|\d+\.)\s/gm, '\n\n')

for (const path of documents.filter((path) => path.endsWith('.md'))) {
  for (const paragraph of proseOf(textOf(path)).split(/\n\s*\n/)) {
    for (const sentence of paragraph.replace(/\s+/g, ' ').split(/(?<=[.!?:;]\)?)\s/)) {
      const count = sentence.split(' ').filter((word) => /\w/.test(word)).length
      if (count > MAX_SENTENCE_WORDS) faults.push(`${path}: a sentence of ${count} words: ${sentence.slice(0, 80)}…`)
    }
  }
}

if (faults.length) {
  console.error(faults.join('\n'))
  process.exitCode = 1
} else {
  console.log(`words: ${words.length} rules hold in ${sources.length + documents.length} files`)
}
