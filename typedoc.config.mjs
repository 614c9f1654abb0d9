// The API reference in docs/api/, made from the hand-written typings: `npm run docs`. A test compares it with them.

import { typings } from './scripts/typedoc-modules.mjs'

/** @type {import('typedoc').TypeDocOptions & import('typedoc-plugin-markdown').PluginOptions} */
export default {
  plugin: ['typedoc-plugin-markdown', './scripts/typedoc-modules.mjs', './scripts/typedoc-throws.mjs'],
  // Every subpath that the package exports is part of it, and nothing else.
  entryPoints: Object.values(typings),
  alwaysCreateEntryPointModule: true,
  tsconfig: 'tsconfig.typedoc.json',
  out: 'docs/api',
  readme: 'none',
  router: 'member',
  // Line numbers and commits would change the pages with every commit.
  disableSources: true,
  disableGit: true,
  // What every emitter has would fill most of three pages.
  externalPattern: ['**/node_modules/**', '**/types/emitter.d.ts'],
  excludeExternals: true,
  // A {@link} that leads nowhere, or a type that is used but not exported, is a mistake in the typings.
  validation: { invalidLink: true, notExported: true, rewrittenLink: true, notDocumented: false },
  treatWarningsAsErrors: true,
  treatValidationWarningsAsErrors: true,
  sort: ['source-order'],
  hideBreadcrumbs: true,
  hidePageHeader: true,
  useCodeBlocks: true,
  expandObjects: true,
  formatWithPrettier: false,
}
