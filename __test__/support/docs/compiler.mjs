// Type-checks the blocks of pages, each as a module of its own next to the package, in one program.

import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import ts from 'typescript'
import { ROOT } from './page.mjs'

const TSC = join(ROOT, 'node_modules', 'typescript-native', 'bin', 'tsc')
const OPTIONS = {
  strict: true,
  noEmit: true,
  skipLibCheck: true,
  target: 'ES2022',
  lib: ['ES2022', 'ESNext.Disposable'],
  module: 'nodenext',
  moduleDetection: 'force',
  types: ['node'],
}

/** Returns the names that a statement of a module declares. */
function declared(statement) {
  if (ts.isVariableStatement(statement)) {
    const names = (name) =>
      ts.isIdentifier(name) ? [name.text] : name.elements.flatMap((one) => (one.name ? names(one.name) : []))
    return statement.declarationList.declarations.flatMap(({ name }) => names(name))
  }
  if (!ts.isImportDeclaration(statement)) return statement.name ? [statement.name.text] : []
  const { name, namedBindings } = statement.importClause ?? {}
  const bindings =
    namedBindings?.elements?.map((element) => element.name.text) ?? (namedBindings ? [namedBindings.name.text] : [])
  return name ? [name.text, ...bindings] : bindings
}

const statementsOf = (text) => [...ts.createSourceFile('block.mts', text, ts.ScriptTarget.ES2022).statements]

/** Returns the text of a block as a module, and the line of the page for each of its lines. */
function moduleOf({ text, line, declarations }) {
  const lines = text.split('\n')
  const numbers = lines.map((_, index) => line + index)
  // The declarations for a block come after the block, so the block may declare a name that others
  // on the page only use. The last declaration is used.
  const taken = new Set(statementsOf(text).flatMap(declared))
  for (const given of declarations.toReversed()) {
    const source = given.text
    for (const statement of statementsOf(source)) {
      if (declared(statement).some((name) => taken.has(name))) continue
      const before = source.slice(0, statement.pos).split('\n').length - 1
      const own = source.slice(statement.pos, statement.end).split('\n')
      lines.push(...own)
      numbers.push(...own.map((_, index) => given.line + before + index))
    }
    for (const name of statementsOf(source).flatMap(declared)) taken.add(name)
  }
  return { text: lines.join('\n'), numbers }
}

/**
 * The folder of the newest types of Node. By default, the types are those of the oldest Node that
 * is supported.
 */
export const NEWEST_NODE = join(ROOT, 'node_modules', '@types-latest')

/**
 * Returns what is wrong with `blocks`, as `PAGE:LINE: MESSAGE`. The types of Node are those in the
 * folder `node`.
 */
export function mistakes(blocks, node) {
  // Within the checkout, the modules find its packages, and can import leasehold by its name.
  mkdirSync(join(ROOT, 'target'), { recursive: true })
  const folder = mkdtempSync(join(ROOT, 'target', 'blocks-'))
  try {
    const modules = new Map()
    for (const block of blocks) {
      const name = `${block.page.name.replaceAll('/', '-')}.${block.line}.mts`
      modules.set(name, { ...moduleOf(block), page: block.page.name })
    }
    for (const [name, { text }] of modules) writeFileSync(join(folder, name), text)
    const strangers = new Set(
      blocks.flatMap(({ page }) => page.modules).filter((name) => !existsSync(join(ROOT, 'node_modules', name))),
    )
    const ambient = [...strangers].map((name) => `declare module '${name}'`).join('\n')
    writeFileSync(join(folder, 'strangers.d.ts'), ambient)
    const compilerOptions = node ? { ...OPTIONS, typeRoots: [node] } : OPTIONS
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*'] }))

    const { stdout, stderr, status } = spawnSync(process.execPath, [TSC, '--pretty', 'false', '-p', folder], {
      cwd: folder,
      encoding: 'utf8',
    })
    // Further lines of a mistake are indented.
    const found = stdout.split(/\n(?! )/).filter((each) => each.trim() !== '')
    if (status !== 0 && found.length === 0) throw new Error(`the compiler failed:\n${stderr}`)
    return found.map((each) => {
      const [, name, line, message] = /^(.+?)\((\d+),\d+\): error \w+: (.*)$/s.exec(each) ?? []
      const of = modules.get(name)
      return of ? `${of.page}:${of.numbers[line - 1]}: ${message.replace(/\s*\n\s*/g, ' ').trim()}` : each
    })
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Returns a block as JavaScript. */
export const javaScriptOf = ({ text }) =>
  ts.transpileModule(text, { compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext } })
    .outputText
