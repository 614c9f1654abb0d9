// A TypeDoc plugin: sets the titles, groups and addresses of documents, and changes links to
// docs/api/ into links to the pages of the site.

import { readdirSync, readFileSync, renameSync } from 'node:fs'
import { join, relative, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { BaseRouter, Converter, ReflectionKind, RendererEvent } from 'typedoc'
import { nameOnSite } from './markdown.mjs'

const ROOT = fileURLToPath(new URL('..', import.meta.url))

/** The folders of docs/api/, by the kind of their pages. */
const FOLDERS = {
  [ReflectionKind.Class]: 'classes',
  [ReflectionKind.Function]: 'functions',
  [ReflectionKind.Interface]: 'interfaces',
  [ReflectionKind.TypeAlias]: 'type-aliases',
  [ReflectionKind.Variable]: 'variables',
}

/** Returns the path of a document's file in the repository. */
const pathOf = (document) => relative(ROOT, document.project.files.getReflectionPath(document)).split(sep).join('/')

/** Returns the text of the first heading, without the name of the package. */
function titleOf(path) {
  const [, title] = /^# (?:leasehold: )?(.*)$/m.exec(readFileSync(join(ROOT, path), 'utf8')) ?? []
  if (!title) throw new Error(`${path} has no heading`)
  return `${title[0].toUpperCase()}${title.slice(1)}`.replaceAll('`', '')
}

/** Returns the group in the menu. TypeDoc shows the members of `none` without a fold. */
function groupOf(path) {
  if (path.startsWith('docs/')) return 'none'
  return path.startsWith('examples/') ? 'Examples' : 'Project'
}

/**
 * Makes addresses like those of the files: docs/cli.html, examples/bank.html,
 * api/leasehold/Lease.html.
 */
class Pages extends BaseRouter {
  getIdealBaseName(reflection) {
    if (reflection.isDocument()) {
      const path = pathOf(reflection).replace(/\.md$/, '')
      return path === 'docs/README'
        ? 'docs/index'
        : path.replace(/\/README$/, '').replace(/^[A-Z]+$/, (name) => name.toLowerCase())
    }
    const names = []
    for (let at = reflection; !at.isProject(); at = at.parent) names.unshift(at.name)
    return ['api', ...names].join('/')
  }
}

/** Names the page of the site for each file in docs/api/. */
function registerApi(project) {
  const register = (path, reflection) => project.files.registerReflectionPath(join(ROOT, 'docs/api', path), reflection)
  register('README.md', project)
  for (const module of project.getChildrenByKind(ReflectionKind.Module)) {
    register(`${module.name}/README.md`, module)
    for (const child of module.children ?? []) {
      register(`${module.name}/${FOLDERS[child.kind]}/${child.name}.md`, child)
    }
  }
}

export function load({ converter, renderer }) {
  converter.on(Converter.EVENT_CREATE_DOCUMENT, (_context, document) => {
    const path = pathOf(document)
    document.name = titleOf(path)
    document.frontmatter.group = groupOf(path)
  })
  // The modules must have their names first.
  converter.on(Converter.EVENT_RESOLVE_END, ({ project }) => registerApi(project))
  renderer.defineRouter('pages', Pages)
  renderer.on(RendererEvent.END, ({ outputDirectory }) => {
    const media = join(outputDirectory, 'media')
    for (const name of readdirSync(media))
      renameSync(join(media, name), join(outputDirectory, nameOnSite(`media/${name}`)))
  })
}
