-- Lets leases live on, and never shorter than before. KEYS: the locks, then their fence keys; ARGV: the ttl in ms, the
-- life that a fence key needs with it and the one that it gets, which is a little more so that not every renewal has to
-- prolong it, how many more fences are wanted, and a token for each lock.
-- Answers one value for each: 1 if the token holds the lock, or, if fences are wanted, a list of the first of them and
-- how many wait; 0 if nobody holds it, -1 if somebody else does; or the server's error.
local call = redis.pcall
local count = #KEYS / 2
local ttl, life, long_life, fences = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local rules
local answers = {}

local function by_rules(lock, side, token)
  if not rules then
    local time = redis.call('TIME')
    rules = (function(now_us) --[[rules]] end)(time[1] * 1000000 + time[2])
  end
  local done, answer = pcall(rules.renew, lock, side, token, ttl, life, fences)
  if not done and type(answer) ~= 'table' then answer = { err = answer } end
  return answer
end

local function renew(lock, side, token)
  -- A renewal that was held up on its way must not undo one that overtook it.
  local left = call('PTTL', lock)
  if left >= ttl or left < 0 then
    -- GETEX is a write: a read-only replica must refuse, rather than tell by its old data.
    local refused = call('GETEX', side)
    if refused and refused.err then return refused end
  else
    local done = call('PEXPIRE', lock, ARGV[1])
    if done ~= 1 then return done end
  end
  -- The fence outlives the lease.
  left = call('PTTL', side)
  if left >= 0 and left < life then call('PEXPIRE', side, long_life) end
  return 1
end

-- MGET and not GET, because to it what is no string is nothing: the rules look closer at whatever does not belong to the
-- token.
local owners = call('MGET', unpack(KEYS, 1, count))
if owners.err then return owners end
for i = 1, count do
  local lock, side, token = KEYS[i], KEYS[count + i], ARGV[i + 4]
  if owners[i] == token and fences == 0 then
    answers[i] = renew(lock, side, token)
  else
    answers[i] = by_rules(lock, side, token)
  end
end
return answers
