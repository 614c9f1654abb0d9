// Finds or installs Chromium, but does not start it.

import { aptInstall, isProgram, onPath, run } from './programs.mjs'

const NAMES = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable']
const ON_MAC = '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome'

/** Returns the path of an installed Chromium, or undefined. */
export function findChromium() {
  const named = process.env.CHROMIUM
  if (named) return isProgram(named) ? named : onPath(named)
  for (const name of NAMES) {
    const found = onPath(name)
    if (found) return found
  }
  return isProgram(ON_MAC) ? ON_MAC : undefined
}

/**
 * Installs Chromium as this system does it. Returns its path, or undefined if that can't be done.
 */
export function installChromium() {
  try {
    if (process.platform === 'darwin' && onPath('brew')) run('brew', ['install', '--cask', 'google-chrome'])
    else if (onPath('apt-get')) aptInstall('chromium')
  } catch (error) {
    console.error(error.message)
  }
  return findChromium()
}
