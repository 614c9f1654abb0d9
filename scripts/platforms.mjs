// Writes the packages of npm/, one for each target of `napi.targets` in package.json. Their
// versions, names and targets come from package.json, so they never have to be changed by hand.
//
//   node scripts/platforms.mjs            writes npm/
//   node scripts/platforms.mjs --check    fails if npm/ differs from what it would write

import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))

const CPU = { x86_64: 'x64', aarch64: 'arm64' }
const WORDS = { x64: 'x64', arm64: 'ARM64', linux: 'Linux', darwin: 'macOS', win32: 'Windows' }

/**
 * Returns the parts of a target's name that npm and the loader use: x86_64-unknown-linux-gnu is
 * linux, x64, glibc.
 */
function platformOf(target) {
  const [machine, vendor, system, abi] = target.split('-')
  const cpu = CPU[machine]
  if (system === 'linux') {
    const libc = abi === 'musl' ? 'musl' : 'glibc'
    return { target, id: `linux-${cpu}-${abi}`, os: 'linux', cpu, libc }
  }
  if (vendor === 'apple') return { target, id: `darwin-${cpu}`, os: 'darwin', cpu }
  return { target, id: `win32-${cpu}-${abi}`, os: 'win32', cpu }
}

/** All platforms that a package is published for: { target, id, name, binary, os, cpu, libc? }. */
export const platforms = manifest.napi.targets.map(platformOf).map((platform) => ({
  ...platform,
  name: `${manifest.name}-${platform.id}`,
  binary: `${manifest.napi.binaryName}.${platform.id}.node`,
}))

/** Returns the platform on which this process runs, or `undefined`. */
export function ownPlatform() {
  const libc =
    process.platform === 'linux'
      ? process.report.getReport().header.glibcVersionRuntime
        ? 'glibc'
        : 'musl'
      : undefined
  return platforms.find((p) => p.os === process.platform && p.cpu === process.arch && p.libc === libc)
}

const title = ({ os, cpu, libc }) => `${WORDS[os]} ${WORDS[cpu]}${libc ? ` with ${libc}` : ''}`

function manifestOf({ name, binary, os, cpu, libc }) {
  return {
    name,
    version: manifest.version,
    description: `The native addon of ${manifest.name} for ${title({ os, cpu, libc })}`,
    license: manifest.license,
    os: [os],
    cpu: [cpu],
    ...(libc && { libc: [libc] }),
    engines: manifest.engines,
    main: binary,
    files: [binary],
  }
}

function readmeOf(platform) {
  return `# ${platform.name}

The native addon of \`${manifest.name}\` for ${title(platform)}
(\`${platform.target}\`). npm chooses and installs it with \`${manifest.name}\`; there is no need to name it anywhere.

License: ${manifest.license}, as that of \`${manifest.name}\`; the text is in the file LICENSE.
`
}

/** Returns the texts of npm/ by path. */
function texts() {
  return platforms.flatMap((platform) => [
    [join('npm', platform.id, 'package.json'), `${JSON.stringify(manifestOf(platform), null, 2)}\n`],
    [join('npm', platform.id, 'README.md'), readmeOf(platform)],
  ])
}

function read(path) {
  try {
    return readFileSync(join(ROOT, path), 'utf8')
  } catch {
    return undefined
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv.includes('--check')) {
    const wrong = texts().flatMap(([path, text]) => (read(path) === text ? [] : [path]))
    const ids = platforms.map(({ id }) => id)
    wrong.push(...readdirSync(join(ROOT, 'npm')).flatMap((id) => (ids.includes(id) ? [] : [`npm/${id}`])))
    if (wrong.length) {
      console.error(
        `${wrong.join(', ')}: different from package.json; \`node scripts/platforms.mjs\` writes npm/ again`,
      )
      process.exit(1)
    }
    console.log(`npm/: ${platforms.length} platforms, version ${manifest.version}`)
  } else {
    for (const [path, text] of texts()) {
      mkdirSync(join(ROOT, path, '..'), { recursive: true })
      writeFileSync(join(ROOT, path), text)
    }
  }
}
