// A TypeDoc plugin: shows which error a `@throws {Type}` names. TypeDoc leaves out types in comments, because those of
// parameters stand in the code; those of errors stand nowhere else.

import { Converter, ReflectionKind } from 'typedoc'
import ts from 'typescript'

/** The error as part of a comment: a link if it is one of the package's own, which need not be imported where it is named. */
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
