// Prints the public interface of the package: every name that it exports, with its declaration.
//
//   node scripts/api-snapshot.mjs            prints it
//   node scripts/api-snapshot.mjs --record   writes it to __test__/types/api.snapshot
//
// A test compares the typings with that file, so that the public interface changes only on purpose.

import { readFileSync, writeFileSync } from 'node:fs'
import { join, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import ts from 'typescript'

const ROOT = fileURLToPath(new URL('..', import.meta.url))

/** The recorded interface. */
export const RECORDED = join(ROOT, '__test__', 'types', 'api.snapshot')

/**
 * Returns the public interface of the package in `root` as text: comments and file names do not
 * count.
 */
export function apiSnapshot(root = ROOT) {
  const { name, exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const entries = Object.entries(exports).filter(([, { types }]) => types)
  const files = entries.map(([, { types }]) => join(root, types))
  const options = { strict: true, module: ts.ModuleKind.Node20, target: ts.ScriptTarget.ES2022, skipLibCheck: true }
  const program = ts.createProgram(files, { ...options, lib: ['lib.es2022.d.ts', 'lib.esnext.disposable.d.ts'] })
  /** The types that an earlier entry has shown. */
  const shown = new Set()
  return entries
    .map(([path], i) => {
      const text = moduleText(program, program.getSourceFile(files[i]), isOwn(root), shown)
      return `## ${name}${path.slice(1)}\n\n${text}`
    })
    .join('\n')
}

/** Returns a function that says whether a file belongs to the typings of the package. */
function isOwn(root) {
  const start = root.split(sep).join('/')
  return ({ fileName }) => fileName.startsWith(start) && !fileName.includes('/node_modules/')
}

/**
 * Returns the exports of a module, and the types that they use without an export. Adds all of them
 * to `shown`, and leaves out unexported types that are in it already.
 */
function moduleText(program, file, isOurs, shown) {
  const checker = program.getTypeChecker()
  const printer = ts.createPrinter({ removeComments: true })
  const resolved = (symbol) => (symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol)
  const exported = checker.getExportsOfModule(checker.getSymbolAtLocation(file))
  const found = new Map(exported.map((symbol) => [resolved(symbol), symbol.name]))
  const hidden = new Set()
  const print = (symbol) =>
    (symbol.declarations ?? [])
      .filter((node) => isOurs(node.getSourceFile()))
      .map((node) => printer.printNode(ts.EmitHint.Unspecified, statementOf(node), node.getSourceFile()))
      .join('\n')
      .replace(/^export (?:declare )?|^declare /gm, '')
  const follow = (symbol) => {
    for (const node of symbol.declarations ?? []) if (isOurs(node.getSourceFile())) visit(statementOf(node))
  }
  const visit = (node) => {
    if (ts.isIdentifier(node)) {
      const symbol = checker.getSymbolAtLocation(node)
      const used = symbol && resolved(symbol)
      const isTopLevel = used?.declarations?.some(
        (each) => ts.isSourceFile(statementOf(each).parent) && isOurs(each.getSourceFile()),
      )
      if (isTopLevel && !found.has(used) && !hidden.has(used) && !shown.has(used)) {
        hidden.add(used)
        follow(used)
      }
    }
    ts.forEachChild(node, visit)
  }
  for (const symbol of found.keys()) follow(symbol)
  for (const symbol of [...found.keys(), ...hidden]) shown.add(symbol)
  const sorted = [...found].sort(([, a], [, b]) => (a < b ? -1 : 1))
  const parts = sorted.map(([symbol, name]) => `export ${name}\n${print(symbol)}\n`)
  const rest = [...hidden].map(print).filter(Boolean).sort()
  return [...parts, ...rest.map((text) => `not exported\n${text}\n`)].join('\n')
}

/** Returns the statement that declares `node`: for a variable, the whole statement. */
function statementOf(node) {
  return ts.isVariableDeclaration(node) ? node.parent.parent : node
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const text = apiSnapshot()
  if (process.argv.includes('--record')) writeFileSync(RECORDED, text)
  else process.stdout.write(text)
}
