// Checks the calls of `leasehold` in blocks of the documentation. A real shell parses each line, in
// an empty folder, with no other program to call and with a value in each variable. The real
// command then checks its words, and does nothing else (dry-run.cjs).

import { execFile } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { temporaryFolder } from '../servers.mjs'
import { ROOT } from './page.mjs'

const DRY_RUN = fileURLToPath(new URL('dry-run.cjs', import.meta.url))
const CLI = join(ROOT, 'dist', 'cli', 'index.js')

/** A call alone, after variables or npx, or within another command. */
const CALL = /^(?:\w+=\S* +)*(?:npx +(?:-\S+ +)*)?leasehold |[|;&(] *leasehold /

/** The text before a command in a crontab, and in a unit of systemd. */
const BEFORE = /^(?:(?:[\d*/,-]+\s+){5}|\w+=(?=\/))(?:\/usr\/bin\/)?/

const PROGRAMS = {
  leasehold: `if said=$("$NODE" --require "$DRY_RUN" "$CLI" "$@" 2>&1); then echo right; else echo "$said"; fi >> "$SAID"`,
  npx: `while [ "\${1#-}" != "$1" ]; do shift; done; exec "$@"`,
}

/**
 * Returns the lines of a block of `sh` or `text` that call `leasehold`, each with the `page` and
 * the `line` on which it begins.
 */
export function callsIn({ page, line, text }) {
  const calls = []
  let begun = ''
  let start = line
  for (const [index, one] of text.split('\n').entries()) {
    if (!begun) start = line + index
    begun += one
    if (begun.endsWith('\\')) {
      begun = begun.slice(0, -1)
      continue
    }
    const command = begun.trim().replace(BEFORE, '')
    if (CALL.test(command)) calls.push({ page, line: start, text: command })
    begun = ''
  }
  return calls
}

/** Returns what the command rejects of `calls`, as `PAGE:LINE: MESSAGE`. */
export async function refusals(t, calls) {
  const folder = temporaryFolder(t)
  const bin = join(folder, 'bin')
  mkdirSync(bin)
  for (const [name, script] of Object.entries(PROGRAMS)) {
    writeFileSync(join(bin, name), `#!/bin/sh\n${script}\n`)
    chmodSync(join(bin, name), 0o755)
  }
  const told = { NODE: process.execPath, DRY_RUN, CLI, NODE_NO_WARNINGS: '1', LEASEHOLD_URL: 'memory:docs' }
  const found = await Promise.all(
    calls.map(async ({ page, line, text }) => {
      const cwd = mkdtempSync(join(folder, 'line-'))
      const said = join(cwd, 'said')
      writeFileSync(said, '')
      const variables = Object.fromEntries([...text.matchAll(/\$(\w+)/g)].map(([, name]) => [name, name]))
      const env = { ...variables, ...told, SAID: said, PATH: bin }
      // Other programs on the line do not exist and fail. Another test checks that `sh` can parse
      // the line.
      await promisify(execFile)('/bin/sh', ['-c', text], { cwd, env, timeout: 30_000 }).catch(() => {})
      const answers = readFileSync(said, 'utf8').split('\n').filter(Boolean)
      const wrong = answers.filter((answer) => answer !== 'right').join(' ')
      return wrong || answers.length === 0 ? `${page.name}:${line}: ${wrong || `nothing was called: ${text}`}` : []
    }),
  )
  return found.flat()
}
