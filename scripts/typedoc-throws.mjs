// A TypeDoc plugin: shows the type of an error in `@throws {Type}`. TypeDoc leaves out types in
// comments, because the code has the types of parameters. It does not have the types of errors.

import { Converter, ReflectionKind } from 'typedoc'
import ts from 'typescript'

/**
 * Returns the error as part of a comment. An error of the package becomes a link, even without an
 * import.
 */
function part(project, name, where) {
  const own = project.getReflectionsByKind(ReflectionKind.Class).filter((reflection) => reflection.name === name)
  if (own.length) return { kind: 'inline-tag', tag: '@link', text: name, target: own[0] }
  if (typeof globalThis[name] !== 'function')
    throw new Error(`${where} throws ${name}, which is no class that is exported`)
  return { kind: 'code', text: `\`${name}\`` }
}

export function load({ converter }) {
  const found = []
  converter.on(Converter.EVENT_CREATE_SIGNATURE, (_context, signature, declaration) => {
    const tags = declaration ? ts.getJSDocTags(declaration).filter((tag) => tag.tagName.text === 'throws') : []
    const told = signature.comment?.getTags('@throws') ?? []
    for (const [index, { content }] of told.entries()) {
      const type = tags[index]?.typeExpression?.type
      if (type) found.push({ content, where: signature.getFullName(), names: type.getText().split(/\s*\|\s*/) })
    }
  })
  converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    for (const { content, where, names } of found.splice(0)) {
      const parts = names.flatMap((name, index) => [
        ...(index ? [{ kind: 'text', text: ' or ' }] : []),
        part(project, name, where),
      ])
      content.unshift(...parts, ...(content.length ? [{ kind: 'text', text: ': ' }] : []))
    }
  })
}
