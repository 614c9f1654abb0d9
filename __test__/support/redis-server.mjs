// Finds or installs the program of the Redis server, but does not start it.

import { mkdirSync, rmSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { aptInstall, isProgram, onPath, run } from './programs.mjs'

const CACHE = fileURLToPath(new URL('../../target/redis', import.meta.url))

/** Returns the path of an installed Redis server, or undefined. */
export function findRedis() {
  const named = process.env.REDIS_SERVER
  if (named) return isProgram(named) ? named : onPath(named)
  const cached = join(CACHE, 'redis-server')
  return onPath('redis-server') ?? (isProgram(cached) ? cached : undefined)
}

/**
 * Debian's `redis-server` package is a symlink and a system service, which its installation starts.
 * The program itself is in `redis-tools`, which has no service: it is a server if it is called by
 * that name.
 */
function installOnDebian() {
  if (!aptInstall('redis-tools')) return undefined
  const program = onPath('redis-check-rdb')
  if (!program) return undefined
  mkdirSync(CACHE, { recursive: true })
  const link = join(CACHE, 'redis-server')
  rmSync(link, { force: true })
  symlinkSync(program, link)
  return link
}

function installOnMac() {
  if (!onPath('brew')) return undefined
  run('brew', ['install', 'redis'], { HOMEBREW_NO_AUTO_UPDATE: '1' })
  return findRedis()
}

/**
 * Installs a Redis server as this system does it. Returns its path, or undefined if that can't be
 * done.
 */
export function installRedis() {
  try {
    if (process.platform === 'darwin') return installOnMac()
    if (onPath('apt-get')) return installOnDebian()
  } catch (error) {
    console.error(error.message)
  }
  return undefined
}
