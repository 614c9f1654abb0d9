// Checks whether a value matches a type of the package, as the compiler reads the type, so that the
// two cannot drift apart.

import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import ts from 'typescript'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** Types whose members are not checked, only whether the value is an object. */
const OPAQUE = ['LockClient', 'LockWorker', 'Error', 'LockLostError']

const PRIMITIVES = [
  [ts.TypeFlags.String, 'string'],
  [ts.TypeFlags.Number, 'number'],
  [ts.TypeFlags.Undefined, 'undefined'],
]

/**
 * Reads the interface `name` of `file`. Returns the `names` of its properties, and a function
 * `faults(property, value)` that returns what is wrong with the value, as texts.
 */
export function readInterface(file, name) {
  const path = join(ROOT, file)
  const program = ts.createProgram([path], {
    strict: true,
    exactOptionalPropertyTypes: true,
    module: ts.ModuleKind.Node20,
    skipLibCheck: true,
  })
  const checker = program.getTypeChecker()
  const source = program.getSourceFile(path)
  const declaration = source.statements.find((node) => ts.isInterfaceDeclaration(node) && node.name.text === name)
  const type = checker.getTypeAtLocation(declaration)
  const properties = new Map(type.getProperties().map((property) => [property.name, checker.getTypeOfSymbol(property)]))

  /** Returns what is wrong with `value`, and where. */
  function faults(value, expected, where) {
    const { flags } = expected
    if (expected.isUnion()) {
      const each = expected.types.map((one) => faults(value, one, where))
      return each.some((found) => found.length === 0)
        ? []
        : [`${where} is ${String(value)}, not ${checker.typeToString(expected)}`]
    }
    if (expected.isLiteral()) return value === expected.value ? [] : [`${where} is ${String(value)}`]
    const primitive = PRIMITIVES.find(([flag]) => flags & flag)?.[1]
    const given = typeof value
    if (primitive) return given === primitive ? [] : [`${where} is a ${given}, not a ${primitive}`]
    if (typeof value !== 'object' || value === null) return [`${where} is no object`]
    if (OPAQUE.includes(expected.symbol?.name)) return []
    if (checker.isArrayType(expected)) {
      const [element] = checker.getTypeArguments(expected)
      if (!Array.isArray(value)) return [`${where} is no array`]
      return value.flatMap((one, i) => faults(one, element, `${where}[${i}]`))
    }
    const known = checker.getPropertiesOfType(expected)
    const strange = Object.keys(value).filter((key) => !known.some((property) => property.name === key))
    return [
      ...strange.map((key) => `${where}.${key} is in no type`),
      ...known.flatMap((property) => {
        if (!(property.name in value)) {
          return property.flags & ts.SymbolFlags.Optional ? [] : [`${where}.${property.name} is missing`]
        }
        const of = checker.getNonNullableType(checker.getTypeOfSymbol(property))
        return faults(value[property.name], of, `${where}.${property.name}`)
      }),
    ]
  }
  return {
    names: [...properties.keys()],
    faults: (property, value) => faults(value, properties.get(property), property),
  }
}
