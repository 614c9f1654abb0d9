// Writes lib/native/protocol.ts: the numbers of src/binding/protocol.rs, which is their only list.
//
//   node scripts/generate-protocol.mjs
//
// A test compares the file with what this script would write.

import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const TABLE = new URL('../src/binding/protocol.rs', import.meta.url)
const TARGET = new URL('../lib/native/protocol.ts', import.meta.url)

const HEADER = `// The numbers that JavaScript and native code have agreed on.
//
// Generated from src/binding/protocol.rs by scripts/generate-protocol.mjs: change that file
// instead.
`

/** Returns a documentation comment of TypeScript with the lines of one of Rust. */
function comment(docs, indent) {
  const lines = [...docs.matchAll(/\/\/\/ ?(.*)/g)].map(([, line]) => line.replace(/\[(`(\w+)`)\]/g, '{@link $2}'))
  if (lines.length === 1 && lines[0].length <= 90) return `${indent}/** ${lines[0]} */\n`
  return [`${indent}/**`, ...lines.map((line) => `${indent} * ${line}`.trimEnd()), `${indent} */`, ''].join('\n')
}

function* constants(table) {
  for (const [, docs, name, number] of table.matchAll(/((?:^\/\/\/.*\n)+)^pub const (\w+): \w+ = (-?[\d_]+);$/gm)) {
    yield `${comment(docs, '')}export const ${name} = ${number}\n`
  }
}

function* enums(table) {
  for (const [, docs, name, body] of table.matchAll(
    /((?:^ {4}\/\/\/.*\n)+)^ {4}enum (\w+) \{\n((?:^ {8}.*\n)+)^ {4}\}$/gm,
  )) {
    const values = [...body.matchAll(/((?:^ {8}\/\/\/.*\n)+)^ {8}(\w+) = ([\d_]+),$/gm)]
    const lines = body.split('\n').filter((line) => line !== '' && !/^ *\/\/\//.test(line))
    if (values.length !== lines.length) throw new Error(`a value of ${name} has no comment, or is no number`)
    const members = values.map(([, valueDocs, value, number]) => `${comment(valueDocs, '  ')}  ${value}: ${number},\n`)
    yield `${comment(docs, '')}export const ${name} = {\n${members.join('')}} as const\n`
  }
}

/** Returns the function for the last records, from the list of kinds that others follow. */
function isLastRecord(table) {
  const [, docs, list] = /((?:^ {4}\/\/\/.*\n)+)^ {4}pub const FOLLOWED: .*= \[([^\]]*)\];$/m.exec(table)
  const bits = [...list.matchAll(/Self::(\w+)/g)].map(([, kind]) => `  (1 << RecordKind.${kind})`)
  return `${comment(docs, '').replace(/\.( \*\/\n)$/, ', as bits.$1')}const FOLLOWED =
${bits.join(' |\n')}

/** Returns true if no record of the slot follows one of this kind. */
export function isLastRecord(kind: number): boolean {
  return ((FOLLOWED >> kind) & 1) === 0
}
`
}

/** Returns the text of lib/native/protocol.ts. */
export function generateProtocol(table = readFileSync(TABLE, 'utf8')) {
  return [HEADER, ...constants(table), ...enums(table), isLastRecord(table)].join('\n')
}

/** Returns the text that lib/native/protocol.ts has. */
export const committedProtocol = () => readFileSync(TARGET, 'utf8')

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(TARGET, generateProtocol())
