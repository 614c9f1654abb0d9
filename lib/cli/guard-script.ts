// The script of the guard (guard.ts), for any /bin/sh.

import { ENDING, OVER } from './takeover'

/**
 * Returns how long the guard assumes that a lock is safe after a successor's signal, in hundredths
 * of a second. At the signal, two thirds of the ttl are left. The other third is for the guard,
 * which looks once per second, and more rarely on a busy machine. If the time were shorter than
 * {@link RENEWED_WITHIN}, the guard would end a command although its lock is renewed.
 */
export const uncheckedFor = (ttl: number): number => Math.max(RENEWED_WITHIN, Math.floor(ttl / 30))
const RENEWED_WITHIN = 125

// What it reads
//
// $1 is the number of seconds between SIGTERM and SIGKILL, $2 what uncheckedFor returns, $3 the
// directory to start the successor in. The successor's command line follows, to which the script
// appends its own process id.
//
// The first line of the input has three fields: the target, the time until which the lock is safe,
// and the id of a successor that already runs. The target is a process or, with a minus, a process
// group whose session has the same id. The second line is the takeover (takeover.ts). Later lines
// are reports: the next time until which the lock is safe, or that the command is over. The script
// prints a line for each report, and leasehold sends the next report only after that line. So the
// pipe never fills up, even if the shell is stopped.
//
// The command must end before its lock, and leasehold's renewals can fail before leasehold is
// killed. So leasehold reports until when the lock is `safe`: until a third of its ttl is left, in
// hundredths of a second since the boot. Without /proc, leasehold reports 0, and the script assumes
// that the lock is safe for `short`.
//
// When leasehold is gone
//
// The input ends. The script sends SIGTERM, starts the successor, and sends SIGKILL after $1
// seconds, or when the lock is no longer safe. It uses the form `kill -TERM ID`: BusyBox does not
// know `kill -s TERM -- ID`, and others read a negative ID without `--` as an option of `kill -s`.
//
// others sends the signals $1 and $2 to the processes of the session that are in other groups, and
// fails if there are none. It needs /proc. On a busy machine with many processes, this search can
// take so long that the lock ends meanwhile. So
// - the script starts the successor before it calls others;
// - others kills the command as soon as the lock is no longer safe, and goes on with SIGKILL;
// - the script keeps what the last search found, as ID:START, and kills that before it searches
//   again. START is when the process started: another process may have the id by then;
// - the script kills earlier by the time that the last search took, but not so early that it would
//   miss a renewal.
//
// A successor can be killed, too. It sends SIGUSR1 as long as it renews the lock (successor.ts).
// Then the lock is safe for `short`. A shell hears of a signal only after its pause, so the script
// counts from the last time that it read before that pause. The script reads the time, in
// hundredths of a second, because on a busy machine it takes longer than 1 s to start `sleep 1`.
// Without /proc, the script counts each pause as 1 s. Until leasehold is gone, the script ignores
// SIGUSR1: in some shells, the signal would end the `read` as if leasehold were gone.
//
// A stopped successor would neither renew the lock nor end processes in other sessions. So the
// script sends SIGCONT whenever it checks whether the successor runs, about once per second.
//
// At the end, the script waits for a successor, because the successor also ends processes in other
// sessions. The script knows the exit code only of a successor that it started itself. After the
// one that leasehold started, the script starts another one, which finds nothing to do if all went
// well.
//
// When leasehold is stopped (SIGSTOP)
//
// The command goes on, but the script gets no reports, and its `read` does not end. So a subshell,
// ring, sends SIGURG when the lock is safe for less than 1 s. Each report starts another ring: the
// old one may have been killed or stopped. The signal ends the `read`. ring sends it again every
// second, because a shell misses a signal that arrives just before its `read`. The script itself
// can be stopped, too, so ring sends SIGCONT first. If the script was killed, another process may
// have got its id, so ring ends when it has another parent.
//
// If leasehold really is stopped, the script acts as if leasehold were gone. It does so even if the
// main process of the command is stopped, too (Ctrl-Z): other processes of the command may go on.
// If the command has ended by itself, the script leaves the other processes alone. A command has
// not ended by itself if a signal has ended it, or if leasehold has reported a signal that asked it
// to end.
//
// A successor that leasehold started does not see the end of its input, so the script sends SIGURG
// to it, too: about once per second, because the successor ignores the signal while leasehold runs
// for a moment, and while it starts. That successor needs time to adopt the lock. So the script
// counts the lock as safe for longer: for half of the time by which `short` exceeds RENEWED_WITHIN.
//
// When the system has no room for a process (pids.max)
//
// No step up to SIGKILL needs a new process. If a shell can't start a process, the shell ends,
// unless `command eval` starts the process (dash, busybox). With such a shell, pause reads /proc
// until the next second begins, and the script starts the successor later. Other shells end, and
// then the trap sends SIGKILL. If there is no room for ring, or for its `sleep`, the script tries
// again after the next report.
//
// Its environment
//
// The script needs the program `sleep`, so it appends the usual directories to PATH: the command's
// PATH may lack them. It unsets its variables first. Otherwise, if the environment has a variable
// of the same name, the shell would export the secrets.
export const SCRIPT = `
PATH=\${PATH:+$PATH:}/usr/bin:/bin
trap '' HUP INT QUIT TERM PIPE USR1
left=$1 short=$2 folder=$3
shift 3
unset target takeover session line stat pid from next safe before successor state start each began spare
unset rang ringers sleeper over ending asked code
found= earlier= renews= now=0 took=0 tries=10
look() {
  line= pid=\${1#/proc/}
  pid=\${pid%/stat}
  read -r line <"$1" && fields \${line##*) }
} 2>/dev/null
fields() {
  state=$1 start=\${20} code=\${50:-0}
  # If only the first thread of a process has ended, it looks like a zombie and still runs.
  [ "$state" != Z ] || [ "\${18}" -le 1 ] || state=R
  set -- "$3" "$4" && [ "$2" = "$session" ] && [ "$1" != "$session" ]
}
others() {
  set -- "$1" "$2" 1
  [ -n "$session" ] || return 1
  [ "$1" = KILL ] || { clock && began=$now earlier=$found found=; }
  for stat in /proc/[0-9]*/stat; do
    look "$stat" && [ "$state" != Z ] && found="$found $pid:$start" && kill -"$1" "$pid" && kill -"$2" "$pid" && set -- "$1" "$2" 0
    [ "$1" = KILL ] || ! late || { kill -KILL "$target"; kill_found; set -- KILL KILL "$3"; }
  done
  [ "$1" = KILL ] || { clock && took=$((now - began)); }
  return "$3"
} 2>/dev/null
kill_found() {
  for each in $earlier $found; do
    look "/proc/\${each%:*}/stat"
    [ -n "$line" ] && [ "$start" = "\${each#*:}" ] && kill -KILL "$pid"
  done
} 2>/dev/null
end() {
  kill -KILL "$target"
  kill_found
  others KILL KILL
} 2>/dev/null
pause() {
  command eval 'sleep 1' && return
  read -r from _ </proc/uptime
  while read -r next _ </proc/uptime && [ "\${next%.*}" = "\${from%.*}" ]; do :; done
} 2>/dev/null
clock() {
  read -r next _ </proc/uptime || return
  passed $((\${next%.*} * 100 + 1\${next#*.} - 100))
} 2>/dev/null
passed() {
  before=$now now=$1
  [ -z "$renews" ] || [ "$safe" -ge $((before + short)) ] || safe=$((before + short))
  renews=
}
late() { clock && [ "$now" -ge "$safe" ]; }
start() {
  successor=
  command eval 'echo "$takeover $safe" | (cd -- "$folder"; exec "$@" "$$") >/dev/null &' && successor=$!
} 2>/dev/null
guarded() { read -r line </proc/self/stat && set -- \${line##*) } && [ "$2" = "$$" ]; }
ring() {
  trap 'over=1' TERM
  # Redirect here: with a redirection of the call, the shell would keep the pipe to leasehold open.
  exec >/dev/null
  while [ -z "$over" ] && command eval 'sleep "$1" &' && sleeper=$!; do
    [ -n "$over" ] || wait "$sleeper"
    [ -z "$over" ] || { kill -KILL "$sleeper"; wait "$sleeper"; exit; }
    guarded && kill -CONT "$$" && kill -URG "$$" || exit
    set -- 1
  done
  # If no process can be started to wait, ring at once rather than never.
  [ -n "$over" ] || { kill -CONT "$$"; kill -URG "$$"; }
}
# Keeps the old timer until the new one has started: there may be no room for another process.
arm() {
  clock && [ "$safe" -gt 0 ] || return
  set -- $(((safe - now) / 100))
  [ "$1" -ge 1 ] || set -- 1
  [ "$1" -le 60 ] || set -- 60
  command eval 'ring "$1" &' || return
  set -- "$!"
  hush
  ringers="$ringers $1"
} 2>/dev/null
# Continues a timer, too: it may be stopped. A timer misses SIGTERM while it starts, so do not wait
# for its end, and try again at the next call.
hush() {
  set -- $ringers
  ringers=
  for each; do
    kill -TERM "$each"
    kill -CONT "$each"
    look "/proc/$each/stat"
    [ -n "$line" ] || continue
    if [ "$state" = Z ]; then wait "$each"; else ringers="$ringers $each"; fi
  done
} 2>/dev/null
halted() {
  state=
  look "/proc/$1/stat"
  case $state in T | t) return 0 ;; esac
  return 1
}
ended() {
  state= code=0
  look "/proc/$1/stat"
  [ "$state" = Z ] && [ -z "$asked" ] && [ "$((code % 128))" -eq 0 ]
}
# Nobody may reap a successor that leasehold started.
runs() {
  [ -n "$successor" ] && kill -CONT "$successor" || return
  [ -z "$ending" ] || kill -URG "$successor"
  look "/proc/$successor/stat"
  [ -z "$line" ] || [ "$state" != Z ]
} 2>/dev/null
read -r target safe successor && read -r takeover || exit 0
echo watching
trap 'rang=1' URG
arm
while read -r line || { line= && [ -n "$rang" ]; }; do
  case $line in
  ${OVER})
    hush
    exit 0
    ;;
  ?*)
    safe=\${line%% *}
    [ "$safe" = "$line" ] || asked=1
    echo reported
    arm
    ;;
  esac
  [ -n "$rang" ] || continue
  rang=
  clock && [ "$now" -lt $((safe - 100)) ] && arm && continue
  halted "$PPID" && ! ended "\${target#-}" && ending=1 && echo ${ENDING} && break
  arm
done
trap '' URG
[ -z "$ending" ] || [ "$short" -le ${RENEWED_WITHIN} ] || safe=$((safe + (short - ${RENEWED_WITHIN}) / 2))
clock || safe=0
[ "$safe" -gt 0 ] || safe=$((now + short))
trap 'renews=1' USR1
case $target in -*) session=\${target#-} ;; esac
trap end EXIT
kill -TERM "$target" 2>/dev/null
kill -CONT "$target" 2>/dev/null
runs || start "$@"
others TERM CONT
while [ "$left" -gt 0 ] && { kill -0 "$target" 2>/dev/null || others 0 0; }; do
  runs || start "$@"
  clock
  spare=$(((short - ${RENEWED_WITHIN}) / 2))
  [ "$took" -gt "$spare" ] || spare=$took
  [ "$now" -lt $((safe - spare)) ] || break
  pause
  clock || passed $((now + 100))
  left=$((left - 1))
done
end
trap - EXIT
hush
# A signal would end "wait".
trap '' USR1
while [ "$tries" -gt 0 ]; do
  while runs; do pause; done
  [ -n "$successor" ] && wait "$successor" && break
  clock || passed $((now + 100))
  [ "$now" -lt $((safe + short)) ] || tries=1
  pause
  start "$@"
  [ -z "$successor" ] || tries=$((tries - 1))
done
`
