-- Lets leases live on, and never shorter than before. KEYS: the locks, then their fence keys; ARGV: the ttl in ms, the life that a fence key needs
-- with it and the one that it gets, which is a little more so that not every renewal has to prolong it, and a token
-- for each lock.
-- Answers one value for each: 1 if the token holds the lock, 0 if nobody does, -1 if somebody else does; or the
-- server's error.
local call = redis.pcall
local count = #KEYS / 2
local ttl, life, long_life = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local answers = {}

local function renew(lock, side, token)
  -- GETEX and not GET, because it is a write: a read-only replica must refuse, rather than tell a holder by its old
  -- data that the lease is gone.
  local owner = call('GETEX', lock)
  if not owner then return 0 end
  if owner.err then return owner end
  if owner ~= token then return -1 end
  local done = 1
  -- A renewal that was held up on its way must not undo one that overtook it.
  if redis.call('PTTL', lock) < ttl then done = call('PEXPIRE', lock, ARGV[1]) end
  -- The fence outlives the lease.
  local left = redis.call('PTTL', side)
  if left >= 0 and left < life then call('PEXPIRE', side, long_life) end
  return done
end

for i = 1, count do
  answers[i] = renew(KEYS[i], KEYS[count + i], ARGV[i + 3])
end
return answers
