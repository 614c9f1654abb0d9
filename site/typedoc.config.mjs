// The documentation site: `npm run docs:site` makes it in target/site/ from the files that GitHub
// shows, and from the typings. TypeDoc also makes docs/api/, so the site needs no other generator.

import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import api from '../typedoc.config.mjs'
import { adaptMarkdown } from './markdown.mjs'

const at = (path) => fileURLToPath(new URL(`../${path}`, import.meta.url))

/** The guides, in the order in which docs/README.md links to them. Others come first. */
const links = readFileSync(at('docs/README.md'), 'utf8')
const guides = readdirSync(at('docs'))
  .filter((name) => name.endsWith('.md'))
  .sort((a, b) => links.indexOf(`](${a})`) - links.indexOf(`](${b})`))
  .map((name) => `docs/${name}`)
const documents = [...guides, 'examples/!(shared)/README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md']

/**
 * The options that this site shares with the API reference in Markdown, without those of its
 * plugin.
 */
const { hideBreadcrumbs, hidePageHeader, useCodeBlocks, expandObjects, formatWithPrettier, ...common } = api

/** @type {import('typedoc').TypeDocOptions} */
export default {
  ...common,
  plugin: ['scripts/typedoc-modules.mjs', 'scripts/typedoc-throws.mjs', 'site/plugin.mjs'].map(at),
  entryPoints: api.entryPoints.map(at),
  tsconfig: at(api.tsconfig),
  out: at('target/site'),
  name: 'leasehold',
  includeVersion: true,
  hideGenerator: true,
  readme: at('README.md'),
  projectDocuments: documents.map(at),
  router: 'pages',
  // Each page begins with its own heading.
  headings: { readme: false, document: false },
  navigation: { includeGroups: true },
  groupOrder: ['none', 'API reference', 'Examples', 'Project', 'Functions', 'Classes', 'Interfaces', '*'],
  locales: { en: { kind_plural_module: 'API reference' } },
  visibilityFilters: {},
  searchInComments: true,
  searchInDocuments: true,
  highlightLanguages: ['bash', 'console', 'dockerfile', 'ini', 'javascript', 'json', 'lua', 'sql', 'tsx', 'typescript'],
  ignoredHighlightLanguages: ['text', 'promql'],
  lightHighlightTheme: 'github-light',
  darkHighlightTheme: 'github-dark',
  customCss: at('site/style.css'),
  favicon: at('site/favicon.svg'),
  markdownItLoader: adaptMarkdown,
}
