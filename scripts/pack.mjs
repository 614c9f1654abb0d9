// Packs what is published: the root package, and the package of each platform whose addon is built.
//
//   node scripts/pack.mjs                     into target/packages, what is built
//   node scripts/pack.mjs --all               for a release: fails if an addon is missing
//   node scripts/pack.mjs --repository URL    with that in each package.json: provenance needs it
//   node scripts/pack.mjs --to FOLDER
//
// Searches for an addon in its folder of npm/, where scripts/build-linux.sh and the release
// workflow put it, and then in the root, where `npm run build` puts it. Prints one line of JSON for
// each package, in the order in which they have to be published. The root is last: a user who
// installs it must find the others.
//
// The root's package.json is changed before it is published:
// - It gets `optionalDependencies`. In a checkout, they would name a version that is not published
//   yet, and package-lock.json could not be kept up to date.
// - It has no scripts: `prepare` builds a checkout, and nothing may run when a package is
//   installed.
// - It has no addon: each addon is in the package of its platform.

import { spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { tooLarge } from './check-size.mjs'
import { platforms } from './platforms.mjs'

const ROOT = fileURLToPath(new URL('..', import.meta.url))

const { values: options } = parseArgs({
  options: { all: { type: 'boolean' }, repository: { type: 'string' }, to: { type: 'string' } },
})
const to = resolve(options.to ?? join(ROOT, 'target', 'packages'))

function fail(message) {
  console.error(message)
  process.exit(1)
}

/** Runs `npm pack` in a folder. Returns its report. */
function pack(folder, ...more) {
  const words = ['pack', '--json', '--ignore-scripts', ...more]
  // On Windows, npm is a script that only a shell can start.
  const { status, stdout, stderr } = spawnSync('npm', words, {
    cwd: folder,
    encoding: 'utf8',
    shell: process.platform === 'win32',
  })
  if (status !== 0) fail(`npm pack failed in ${folder}:\n${stderr}`)
  const said = JSON.parse(stdout)
  return Array.isArray(said) ? said[0] : Object.values(said)[0]
}

function write(folder, manifest) {
  const { repository } = options
  const whole = repository ? { ...manifest, repository: { type: 'git', url: repository } } : manifest
  writeFileSync(join(folder, 'package.json'), `${JSON.stringify(whole, null, 2)}\n`)
}

const read = (path) => JSON.parse(readFileSync(join(ROOT, path), 'utf8'))

/** Packs the files that `fill` puts into an empty folder. */
function packed(name, fill) {
  const folder = join(to, 'staged', name)
  mkdirSync(folder, { recursive: true })
  fill(folder)
  const { filename, size, unpackedSize, version } = pack(folder, '--pack-destination', to)
  console.log(JSON.stringify({ name, version, file: join(to, filename), size, unpackedSize }))
}

function packPlatform({ id, name, binary }) {
  // A release does not use an addon that the linker of this machine made for this machine.
  const places = options.all ? [join('npm', id)] : [join('npm', id), '.']
  const path = places.map((place) => join(ROOT, place, binary)).find(existsSync)
  if (!path) return false
  const problem = options.all ? tooLarge(path) : undefined
  if (problem !== undefined) fail(problem)
  packed(name, (folder) => {
    write(folder, read(join('npm', id, 'package.json')))
    cpSync(join(ROOT, 'npm', id, 'README.md'), join(folder, 'README.md'))
    cpSync(join(ROOT, 'LICENSE'), join(folder, 'LICENSE'))
    cpSync(path, join(folder, binary))
  })
  return true
}

function packRoot() {
  const { scripts: _, devDependencies: __, napi: ___, ...manifest } = read('package.json')
  packed(manifest.name, (folder) => {
    for (const { path } of pack(ROOT, '--dry-run').files) {
      if (path === 'package.json' || path.endsWith('.node')) continue
      mkdirSync(dirname(join(folder, path)), { recursive: true })
      cpSync(join(ROOT, path), join(folder, path))
    }
    write(folder, {
      ...manifest,
      files: manifest.files.filter((file) => !file.endsWith('.node')),
      optionalDependencies: Object.fromEntries(platforms.map(({ name }) => [name, manifest.version])),
    })
  })
}

for (const built of ['native.cjs', 'dist/index.js']) {
  if (!existsSync(join(ROOT, built))) fail(`${built} is missing: \`npm run build\` makes it`)
}
// Remove what another version left, so that it is not published with this one.
rmSync(to, { recursive: true, force: true })
mkdirSync(to, { recursive: true })
const missing = platforms.filter((platform) => !packPlatform(platform))
if (options.all && missing.length) fail(`no addon for ${missing.map(({ id }) => id).join(', ')}: see docs/platforms.md`)
packRoot()
rmSync(join(to, 'staged'), { recursive: true })
