// A TypeDoc plugin: names each module as users import it, `leasehold` or `leasehold/SUBPATH`, and
// not by its file.

import { readFileSync } from 'node:fs'
import { Converter } from 'typedoc'

const { name: root, exports } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))

/** The files of the typings in package.json, by the names with which users import them. */
export const typings = Object.fromEntries(
  Object.entries(exports)
    .filter(([, { types }]) => types)
    .map(([path, { types }]) => [`${root}${path.slice(1)}`, types]),
)

export function load({ converter }) {
  // TypeDoc has named the modules by the path of the file, without the ending.
  const named = new Map(Object.entries(typings).map(([name, file]) => [file.replace(/^\.\/|\.d\.ts$/g, ''), name]))
  converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    for (const module of project.children) {
      const name = named.get(module.name)
      if (!name) throw new Error(`${module.name} is no module that package.json exports`)
      module.name = name
    }
  })
}
