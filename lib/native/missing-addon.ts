// Makes the error for an addon that can't be loaded. The error names the platform, the files that
// were tried, and what to do.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** The platforms that a package is published for; `npm/` has one folder for each. */
const PUBLISHED = [
  'linux-x64-gnu',
  'linux-arm64-gnu',
  'linux-x64-musl',
  'linux-arm64-musl',
  'darwin-x64',
  'darwin-arm64',
  'win32-x64-msvc',
  'win32-arm64-msvc',
]

/**
 * The oldest glibc that the published packages run on; scripts/build-linux.sh links for it and
 * checks it.
 */
const OLDEST_GLIBC = '2.28'

const FROM_SOURCE =
  'build it: in a checkout of leasehold, with Rust (https://rustup.rs) and a C compiler, `npm install` does'

/**
 * The C library of this process, and its version if it is glibc. `undefined` on a system that has
 * only one.
 */
interface Libc {
  name: 'gnu' | 'musl'
  version?: string
}

function libc(): Libc | undefined {
  if (process.platform !== 'linux') return undefined
  // Without `excludeNetwork`, a report looks up the names of all hosts that the process is
  // connected to.
  const { report } = process as { report?: NodeJS.ProcessReport & { excludeNetwork?: boolean } }
  if (typeof report?.getReport === 'function') {
    report.excludeNetwork = true
    const { header } = report.getReport() as { header?: { glibcVersionRuntime?: string } }
    if (header?.glibcVersionRuntime) return { name: 'gnu', version: header.glibcVersionRuntime }
  }
  try {
    return { name: readFileSync('/usr/bin/ldd', 'utf8').includes('musl') ? 'musl' : 'gnu' }
  } catch {
    return { name: 'gnu' }
  }
}

/**
 * Yields the errors of all files that native.cjs tried, the last one first. native.cjs makes each
 * error the cause of the next one.
 */
function* causes(error: unknown): Generator<Error> {
  for (let e = error; e instanceof Error; e = e.cause) yield e
}

const firstLine = (text: string) => text.split('\n', 1)[0] as string

/**
 * Returns the error to throw if `native.cjs` threw `cause`. Its `code` is `ERR_LOCK_NO_ADDON`.
 */
export function missingAddon(cause: unknown): Error {
  const c = libc()
  const kind = c?.name ?? (process.platform === 'win32' ? 'msvc' : undefined)
  const platform = [process.platform, process.arch, kind].filter(Boolean).join('-')
  const file = join(__dirname, '..', '..', `leasehold.${platform}.node`)
  const name = `leasehold-${platform}`
  const running = `Node ${process.versions.node}${c?.version ? `, glibc ${c.version}` : ''}`
  const published = PUBLISHED.includes(platform)
  // Find the error of a file that exists but can't be loaded. Errors of missing files say nothing.
  const broken = [...causes(cause)].slice(1).find((e) => !/^Cannot find module|^Unsupported /.test(e.message))

  const lines = [`leasehold has no native addon for ${platform} here (${running}).`]
  if (published) lines.push(`Looked for the package ${name}, and for ${file}.`)
  if (published && broken) {
    lines.push(`One of them is there, but can't be loaded: ${firstLine(broken.message)}`, `- ${remedy(broken, c)}`)
    lines.push(`- or ${FROM_SOURCE}`)
  } else if (published) {
    lines.push(
      'It is an optional dependency of leasehold, which npm installs with it. Mostly one of these is why it is not there:',
      '- it was installed with --omit=optional or --no-optional: install again without',
      '- package-lock.json was written on another platform, and npm kept to it: remove node_modules and package-lock.json, and `npm install`',
      '- node_modules was copied from another platform, for instance into a container: install there',
      '- a bundler left it out: declare leasehold external',
      `- or ${FROM_SOURCE}`,
    )
  } else {
    lines.push(
      `There is no package for this platform; there is one for ${PUBLISHED.join(', ')}.`,
      `- run it on one of these, or ${FROM_SOURCE}`,
    )
  }
  return Object.assign(new Error(lines.join('\n'), { cause }), { code: 'ERR_LOCK_NO_ADDON' })
}

function remedy({ message }: Error, c: Libc | undefined): string {
  if (/GLIBC_[\d.]+' not found/.test(message)) {
    return `the published packages need glibc ${OLDEST_GLIBC} or later, this is ${c?.version ?? 'older'}: use a newer system or image`
  }
  if (/\b(libc\.musl|ld-musl|libc\.so\.6|ld-linux)/.test(message)) {
    return 'it is for the other C library (glibc or musl): remove node_modules, and install on the system that it runs on'
  }
  return 'the file may be damaged or for another system: remove node_modules, and `npm install` again'
}
