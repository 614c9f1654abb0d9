// Finds the durations in the public types, and what an editor shows when the pointer is on one.

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import ts from 'typescript'
import { ROOT } from './page.mjs'

const UNITS = ['Milliseconds', 'Seconds']

const OPTIONS = {
  strict: true,
  noEmit: true,
  exactOptionalPropertyTypes: true,
  target: ts.ScriptTarget.ES2022,
  lib: ['lib.es2022.d.ts', 'lib.esnext.disposable.d.ts'],
  module: ts.ModuleKind.NodeNext,
  moduleDetection: ts.ModuleDetectionKind.Force,
  types: ['node'],
}

/** The files of the typings. */
export const typings = () => [
  join(ROOT, 'index.d.ts'),
  ...readdirSync(join(ROOT, 'types'))
    .sort()
    .map((name) => join(ROOT, 'types', name)),
]

/**
 * Returns a TypeScript language service, as an editor has it, for the typings and the files in
 * `texts`.
 */
export function editor(texts = new Map()) {
  const host = {
    ...ts.sys,
    getCompilationSettings: () => OPTIONS,
    getScriptFileNames: () => [...typings(), ...texts.keys()],
    getScriptVersion: () => '1',
    getScriptSnapshot: (path) => {
      const text = texts.get(path) ?? ts.sys.readFile(path)
      return text === undefined ? undefined : ts.ScriptSnapshot.fromString(text)
    },
    fileExists: (path) => texts.has(path) || ts.sys.fileExists(path),
    readFile: (path) => texts.get(path) ?? ts.sys.readFile(path),
    getCurrentDirectory: () => ROOT,
    getDefaultLibFileName: ts.getDefaultLibFilePath,
    useCaseSensitiveFileNames: () => ts.sys.useCaseSensitiveFileNames,
  }
  return ts.createLanguageService(host)
}

/** Returns what `service` shows when the pointer is at `position`, as one line. */
export function hover(service, path, position) {
  const parts = service.getQuickInfoAtPosition(path, position)?.displayParts
  return ts.displayPartsToString(parts).replaceAll(/\s+/g, ' ')
}

/** Returns the declarations around `node` that have a name, from the outside to the inside. */
function named(node) {
  const found = []
  for (let at = node.parent; at; at = at.parent) if (at.name && !ts.isTypeParameterDeclaration(at)) found.unshift(at)
  return found
}

/**
 * Returns the declarations in a file that are numbers, as `{ name, position, unit, comment }`. The
 * `name` is like `LockClient.semaphore.permits`, and the `unit` is missing if the type is `number`.
 */
export function numbersIn(path, text = readFileSync(path, 'utf8')) {
  const file = ts.createSourceFile(path, text, ts.ScriptTarget.ES2022, true)
  const found = []
  const visit = (node) => {
    const unit = ts.isTypeReferenceNode(node) && UNITS.find((name) => name === node.typeName.getText())
    if (unit || node.kind === ts.SyntaxKind.NumberKeyword) {
      const owners = named(node)
      const owner = owners.at(-1)
      found.push({
        path,
        name: owners.map((one) => one.name.getText()).join('.'),
        position: owner.name.getStart(),
        unit: unit || undefined,
        comment: ts
          .getJSDocCommentsAndTags(owner)
          .map((one) => one.getText())
          .join('\n'),
      })
    }
    ts.forEachChild(node, visit)
  }
  visit(file)
  return found
}
