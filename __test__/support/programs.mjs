// Finds or installs the programs that tests need.

import { execFileSync, spawnSync } from 'node:child_process'
import { accessSync, constants } from 'node:fs'
import { delimiter, join } from 'node:path'

export const isProgram = (path) => {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}

export const onPath = (name) =>
  (process.env.PATH ?? '')
    .split(delimiter)
    .map((folder) => join(folder, name))
    .find(isProgram)

export const run = (command, args, env = {}) =>
  execFileSync(command, args, { stdio: 'inherit', env: { ...process.env, ...env } })

/**
 * Returns the environment for npm, which may need the certificates that run.mjs keeps from all
 * other processes.
 */
export const npmEnv = () => ({
  ...process.env,
  NODE_EXTRA_CA_CERTS: process.env.LEASEHOLD_TEST_CA_CERTS ?? process.env.NODE_EXTRA_CA_CERTS,
})

/**
 * Installs a package of Debian, as root or by sudo. Returns false if it can't try; throws if the
 * installation fails.
 */
export function aptInstall(name) {
  const isRoot = process.getuid() === 0
  if (!isRoot && (!onPath('sudo') || spawnSync('sudo', ['-n', 'true']).status !== 0)) return false
  const apt = (...args) => {
    const command = ['env', 'DEBIAN_FRONTEND=noninteractive', 'apt-get', ...args]
    if (!isRoot) command.unshift('sudo', '-n')
    run(command[0], command.slice(1))
  }
  apt('update', '-q')
  apt('install', '-q', '-y', '--no-install-recommends', name)
  return true
}
