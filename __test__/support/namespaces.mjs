// Launchers that use Linux namespaces: for processes whose clock counts from another instant, for a
// machine that seems to have rebooted, for containers, and for small file systems.

import { spawnSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const BOOT_ID = '/proc/sys/kernel/random/boot_id'

/** Returns why `launcher` can't be used here, or false. */
function refusal(what, launcher) {
  const { status, error, stderr } = spawnSync(launcher[0], [...launcher.slice(1), 'true'], { encoding: 'utf8' })
  return status === 0 ? false : `${what} needs Linux, and root: ${error?.message ?? stderr.trim()}`
}

/** Returns a launcher of processes whose clocks are that many seconds ahead of the host's. */
export const inTimeNamespace = ({ boottime = 3_600, monotonic = 0 } = {}) => [
  ...['unshare', '--time', '--boottime', `${boottime}`, '--monotonic', `${monotonic}`],
]

/** Says why time namespaces can't be used here; false if they can. */
export const noTimeNamespaces = refusal('a time namespace', inTimeNamespace())

/**
 * Shows `$1` as the boot's id and `$2` as the clock's offsets, then runs the command that follows.
 */
const REBOOT = `mount --bind "$1" ${BOOT_ID} && mount --bind "$2" /proc/$$/timens_offsets && shift 2 && exec "$@"`

/** Shows `$1` as the clock's offsets, then runs the command that follows. */
const HIDE = 'mount --bind "$1" /proc/$$/timens_offsets && shift && exec "$@"'

/**
 * Returns a launcher of processes in a time namespace that can't read how far their clocks differ.
 */
export function inHiddenTimeNamespace(folder) {
  const nothing = join(folder, 'nothing')
  writeFileSync(nothing, '')
  return [...inTimeNamespace(), '--mount', 'sh', '-c', HIDE, 'sh', nothing]
}

/** Returns a launcher of processes in a time namespace and without /proc. */
export const withoutProc = () => [
  ...inTimeNamespace(),
  '--mount',
  'sh',
  '-c',
  'mount -t tmpfs none /proc && exec "$@"',
  'sh',
]

/**
 * Returns a launcher of processes to which the machine seems to have started `uptime` seconds ago:
 * the boot has another id, and the boot clock began again. The processes can't tell that they are
 * in namespaces. The launcher keeps its files in `folder`.
 */
export function afterReboot(folder, uptime = 3) {
  const [id, offsets] = ['boot-id', 'offsets'].map((name) => join(folder, `${name}-${randomUUID()}`))
  writeFileSync(id, `${randomUUID()}\n`)
  writeFileSync(offsets, 'monotonic 0 0\nboottime 0 0\n')
  const shown = Math.floor(Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0]))
  return [...inTimeNamespace({ boottime: uptime - shown }), '--mount', 'sh', '-c', REBOOT, 'sh', id, offsets]
}

/** Returns why a reboot can't be simulated here, or false. */
export const noReboot = (folder) => noTimeNamespaces || refusal('another boot', afterReboot(folder))

/**
 * Returns a launcher of processes that see an empty file system of `size`, such as `1m`, at
 * `folder`.
 */
export const onSmallFileSystem = (folder, size) => [
  ...['unshare', '--mount', 'sh', '-c', 'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"', 'sh'],
  ...[size, folder],
]

/** Says why no small file system can be made here; false if it can. */
export const noSmallFileSystem = refusal('a file system', onSmallFileSystem(tmpdir(), '1m'))

/** Returns a launcher of processes that see the folder `from` also as the folder `to`. */
export const withBindMount = (from, to) => [
  ...['unshare', '--mount', 'sh', '-c', 'mount --bind "$1" "$2" && shift 2 && exec "$@"', 'sh', from, to],
]

/** Says why no folder can be mounted at another one here; false if it can. */
export const noBindMounts = refusal('a bind mount', withBindMount(tmpdir(), tmpdir()))

/** A launcher that makes the process the first one of a pid namespace, as in a container. */
export const asFirstProcess = ['unshare', '--pid', '--fork', '--mount-proc']

/** Says why no pid namespace can be made here; false if it can. */
export const noPidNamespaces = refusal('a pid namespace', asFirstProcess)

/** Shows `$1` as the boot's id, and then runs the command that follows. */
const RENAME = `file=$(mktemp) && printf %s "$1" > "$file" && mount --bind "$file" ${BOOT_ID} && rm "$file" && shift && exec "$@"`

/** Returns a launcher of processes that read `boot` as the boot's id, as in a container of LXC. */
export const inContainer = (boot) => ['unshare', '--mount', 'sh', '-c', RENAME, 'sh', boot]

/** Says why no container with its own boot id can be made here; false if it can. */
export const noContainers = refusal('a boot id', inContainer(randomUUID()))
