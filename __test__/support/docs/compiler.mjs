// Type-checks the blocks of pages, each as a module of its own next to the package, in one program.

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import ts from 'typescript'
import { ROOT } from './page.mjs'

const OPTIONS = {
  strict: true,
  noEmit: true,
  skipLibCheck: true,
  target: ts.ScriptTarget.ES2022,
  lib: ['lib.es2022.d.ts', 'lib.esnext.disposable.d.ts'],
  module: ts.ModuleKind.NodeNext,
  moduleDetection: ts.ModuleDetectionKind.Force,
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
  const options = node ? { ...OPTIONS, typeRoots: [node] } : OPTIONS
  const modules = new Map()
  for (const block of blocks) {
    const path = join(ROOT, 'docs', `${block.page.name.replaceAll('/', '-')}.${block.line}.mts`)
    modules.set(path, { ...moduleOf(block), page: block.page.name })
  }
  const strangers = new Set(
    blocks.flatMap(({ page }) => page.modules).filter((name) => !existsSync(join(ROOT, 'node_modules', name))),
  )
  const ambient = join(ROOT, 'docs', 'strangers.d.ts')
  const texts = new Map([...modules].map(([path, { text }]) => [path, text]))
  texts.set(ambient, [...strangers].map((name) => `declare module '${name}'`).join('\n'))

  const host = ts.createCompilerHost(options)
  const { fileExists, readFile, getSourceFile } = host
  host.fileExists = (path) => texts.has(path) || fileExists(path)
  host.readFile = (path) => texts.get(path) ?? readFile(path)
  host.getSourceFile = (path, version, ...rest) =>
    texts.has(path) ? ts.createSourceFile(path, texts.get(path), version, true) : getSourceFile(path, version, ...rest)
  host.getCurrentDirectory = () => ROOT

  const program = ts.createProgram([...texts.keys()], options, host)
  return ts.getPreEmitDiagnostics(program).map(({ file, start, messageText }) => {
    const message = ts.flattenDiagnosticMessageText(messageText, ' ')
    const found = modules.get(file?.fileName)
    if (!found) return `${file?.fileName ?? 'compiler'}: ${message}`
    const { line } = file.getLineAndCharacterOfPosition(start)
    return `${found.page}:${found.numbers[line]}: ${message}`
  })
}

/** Returns a block as JavaScript. */
export const javaScriptOf = ({ text }) =>
  ts.transpileModule(text, { compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext } })
    .outputText
