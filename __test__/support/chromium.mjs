// Where Chromium is, or how to get it. Nothing here starts it.

import { aptInstall, isProgram, onPath, run } from './programs.mjs'

const NAMES = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable']
const ON_MAC = '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome'

/** The path of a Chromium that is here already, or undefined. */
export function findChromium() {
  const named = process.env.CHROMIUM
  if (named) return isProgram(named) ? named : onPath(named)
  for (const name of NAMES) {
    const found = onPath(name)
    if (found) return found
  }
  return isProgram(ON_MAC) ? ON_MAC : undefined
}

/** Installs it in this system's way. Returns its path, or undefined where that can't be done. */
export function installChromium() {
  try {
    if (process.platform === 'darwin' && onPath('brew')) run('brew', ['install', '--cask', 'google-chrome'])
    else if (onPath('apt-get')) aptInstall('chromium')
  } catch (error) {
    console.error(error.message)
  }
  return findChromium()
}
