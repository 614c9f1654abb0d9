// Finds which file imports which, in TypeScript and in Rust, and which files import each other in a
// circle.
//
// Reads only the text of the files, because .ci/run needs the result before anything is installed.

import { posix } from 'node:path'

/**
 * Returns what each file imports from the others. `files` maps paths to texts. Imports of types
 * count.
 */
export function typescriptGraph(files) {
  const graph = new Map()
  for (const [path, text] of files) {
    const imported = new Set()
    for (const [, name] of withoutComments(text).matchAll(
      /(?:\bfrom\s*|\bimport\s*\(?\s*|\brequire\s*\(\s*)['"](\.[^'"]*)['"]/g,
    )) {
      const target = posix.join(posix.dirname(path), name.replace(/\.js$/, ''))
      const found = [`${target}.ts`, `${target}.d.ts`, `${target}/index.ts`].find((candidate) => files.has(candidate))
      if (found !== undefined && found !== path) imported.add(found)
    }
    graph.set(path, imported)
  }
  return graph
}

/**
 * Returns the groups of files that import each other in a circle: the larger ones first, each
 * sorted. Two files are in one group if each can be reached from the other.
 */
export function circlesOf(graph) {
  const numbers = new Map()
  const lowest = new Map()
  const stack = []
  const groups = []
  const visit = (path) => {
    numbers.set(path, numbers.size)
    lowest.set(path, numbers.get(path))
    stack.push(path)
    for (const next of graph.get(path) ?? []) {
      if (!numbers.has(next)) visit(next)
      if (stack.includes(next)) lowest.set(path, Math.min(lowest.get(path), lowest.get(next)))
    }
    if (lowest.get(path) !== numbers.get(path)) return
    const group = stack.splice(stack.indexOf(path)).sort()
    if (group.length > 1) groups.push(group)
  }
  for (const path of graph.keys()) if (!numbers.has(path)) visit(path)
  return groups.sort((a, b) => b.length - a.length || (a[0] < b[0] ? -1 : 1))
}

/**
 * Returns the graph of the folders directly below `root`. A file there counts as a folder of its
 * own.
 */
export function roomGraph(graph, root) {
  const roomOf = (path) => path.slice(root.length + 1).split('/', 1)[0]
  const rooms = new Map()
  for (const [path, imported] of graph) {
    const room = roomOf(path)
    if (!rooms.has(room)) rooms.set(room, new Set())
    for (const other of imported) if (roomOf(other) !== room) rooms.get(room).add(roomOf(other))
  }
  return rooms
}

/**
 * Returns what each file of a Rust crate uses of the others. `files` maps paths to texts, and
 * `root` is the path of the crate's lib.rs. Follows `pub use` to the file that defines a name.
 * Leaves out items under `#[cfg(test)]`.
 */
export function rustGraph(files, root) {
  const modules = new Map()
  addModule(modules, files, { name: 'crate', file: root, folder: posix.dirname(root), parent: undefined })
  const graph = new Map([...modules.values()].map(({ file }) => [file, new Set()]))
  for (const module of modules.values()) {
    for (const path of module.paths) {
      const file = definerOf(modules, module, path, new Set())
      if (file !== undefined && file !== module.file) graph.get(module.file).add(file)
    }
  }
  return graph
}

function addModule(modules, files, { name, file, folder, parent, body }) {
  const text = body ?? withoutTests(withoutComments(files.get(file)).replace(/"(?:[^"\\]|\\.)*"/gs, '""'))
  const module = { name, file, parent, children: new Map(), paths: [], exports: new Map() }
  modules.set(name, module)
  const inline = []
  const own = text.replace(/\bmod\s+(\w+)\s*(;|\{)/g, (all, child, end, at) => {
    if (end === '{') inline.push({ child, at: at + all.length - 1 })
    return end === '{' ? all : ''
  })
  const bodies = inline.map(({ child }) => {
    const start = own.search(new RegExp(`\\bmod\\s+${child}\\s*\\{`))
    const open = own.indexOf('{', start)
    return { child, start, open, end: closing(own, open) }
  })
  const top = bodies.reduceRight((rest, { start, end }) => rest.slice(0, start) + rest.slice(end + 1), own)
  for (const { child, open, end } of bodies) {
    module.children.set(child, `${name}::${child}`)
    addModule(modules, files, {
      name: `${name}::${child}`,
      file,
      folder: `${folder}/${child}`,
      parent: name,
      body: own.slice(open + 1, end),
    })
  }
  for (const [, child] of text.matchAll(/\bmod\s+(\w+)\s*;/g)) {
    const found = [`${folder}/${child}.rs`, `${folder}/${child}/mod.rs`].find((path) => files.has(path))
    if (found === undefined) continue
    module.children.set(child, `${name}::${child}`)
    addModule(modules, files, { name: `${name}::${child}`, file: found, folder: `${folder}/${child}`, parent: name })
  }
  const imports = /\b(pub(?:\s*\([^)]*\))?\s+)?use\s+([^;]+);/g
  for (const [, isPublic, tree] of top.matchAll(imports)) {
    for (const { path, as } of pathsOf(tree.replace(/\s+/g, ' ').trim())) {
      module.paths.push(path)
      if (isPublic && as !== '*') module.exports.set(as, path)
      if (isPublic && as === '*') module.exports.set(`*${path.join('::')}`, path)
    }
  }
  for (const [path] of top.replace(imports, '').matchAll(/\b[A-Za-z_]\w*(?:::[A-Za-z_]\w*)+/g))
    module.paths.push(path.split('::'))
}

/** Returns the paths of a `use` tree: `a::{b, c::{d as e, *}}` has three. */
function pathsOf(tree) {
  const brace = tree.indexOf('{')
  if (brace < 0) {
    const [path, as] = tree.split(/ as /)
    const segments = path.split('::').map((segment) => segment.trim())
    const last = segments.at(-1)
    if (last === '*' || last === 'self') segments.pop()
    return [{ path: segments, as: as?.trim() ?? (last === '*' ? '*' : segments.at(-1)) }]
  }
  const prefix = tree.slice(0, brace)
  const inner = tree.slice(brace + 1, closing(tree, brace))
  const parts = []
  let [depth, from] = [0, 0]
  for (let i = 0; i <= inner.length; i++) {
    if (inner[i] === '{') depth++
    else if (inner[i] === '}') depth--
    else if (depth === 0 && (inner[i] === ',' || i === inner.length)) {
      parts.push(inner.slice(from, i).trim())
      from = i + 1
    }
  }
  return parts.filter(Boolean).flatMap((part) => pathsOf(prefix + part))
}

/**
 * Returns the file that defines `path` in `module`, or `undefined` if no file of this crate does.
 */
function definerOf(modules, module, [first, ...rest], seen) {
  let at
  if (first === 'crate') at = modules.get('crate')
  else if (first === 'self') at = module
  else if (first === 'super') at = modules.get(module.parent)
  else if (module.children.has(first)) at = modules.get(module.children.get(first))
  if (at === undefined) return undefined
  for (const [i, segment] of rest.entries()) {
    if (segment === 'super') at = modules.get(at.parent)
    else if (at.children.has(segment)) at = modules.get(at.children.get(segment))
    else {
      const exported = at.exports.get(segment)
      const mark = `${at.name}::${segment}`
      if (exported === undefined || seen.has(mark)) return at.file
      return definerOf(modules, at, [...exported, ...rest.slice(i + 1)], seen.add(mark)) ?? at.file
    }
    if (at === undefined) return undefined
  }
  return at.file
}

/** Returns the text without items under `#[cfg(test)]`, and other attributes between the two. */
function withoutTests(text) {
  let rest = text
  for (;;) {
    const found = /#\[cfg\((?:all\()?test\b[^\]]*\]/.exec(rest)
    if (found === null) return rest
    const item = /[;{]/g
    item.lastIndex = found.index + found[0].length
    const end = item.exec(rest)
    const until = end === null ? rest.length : end[0] === ';' ? end.index : closing(rest, end.index)
    rest = rest.slice(0, found.index) + rest.slice(until + 1)
  }
}

/** Returns the position at which the brace at `open` is closed. */
function closing(text, open) {
  let depth = 0
  for (let i = open; i < text.length; i++) {
    if (text[i] === '{') depth++
    else if (text[i] === '}' && --depth === 0) return i
  }
  return text.length
}

function withoutComments(text) {
  return text.replace(/\/\*.*?\*\//gs, '').replace(/^\s*\/\/.*$|\s\/\/.*$/gm, '')
}
