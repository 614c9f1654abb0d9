-- Lets leases live on, and never shorter than before. KEYS: the locks, then their fence keys; ARGV: the ttl in ms, the
-- life that a fence key needs with it and the one that it gets, which is a little more so that not every renewal has to
-- prolong it, how many more fences are wanted, and a token for each lock. If this number is -1, the
-- script detaches the leases, and for each lock the fence and the ttl in ms of its lease follow.
-- Answers one value for each: 1 if the token holds the lock, or, if fences are wanted, a list of the first of them and
-- how many wait; 0 if nobody holds it, -1 if somebody else does; or the server's error.
local call = redis.pcall
local count = #KEYS / 2
local ttl, life, long_life, fences = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local rules
local answers = {}

-- MGET and not GET, because to it what is no string is nothing: the rules look closer at whatever does not belong to the
-- token.
local owners = call('MGET', unpack(KEYS, 1, count))
if owners.err then return owners end
for i = 1, count do
  local lock, side, token = KEYS[i], KEYS[count + i], ARGV[i + 4]
  local answer = 1
  if owners[i] ~= token or fences ~= 0 then
    if not rules then
      local time = redis.call('TIME')
      rules = (function(now_us) --[[rules]] end)(time[1] * 1000000 + time[2])
    end
    local done
    if fences < 0 then
      local fence, own_ttl = tonumber(ARGV[3 + count + 2 * i]), ARGV[4 + count + 2 * i]
      done, answer = pcall(rules.detach, lock, side, token, ttl, life, fence, own_ttl)
    else
      done, answer = pcall(rules.renew, lock, side, token, ttl, life, fences)
    end
    if not done and type(answer) ~= 'table' then answer = { err = answer } end
  else
    -- A delayed renewal must not shorten a later one that overtook it. The renewal writes even
    -- then: a read-only replica has to refuse it, and must not answer from old data that the lease
    -- lives. And a WAIT behind the renewal must not end before replicas have the lease.
    answer = call('PEXPIRE', lock, math.max(ttl, call('PTTL', lock)))
    -- The fence outlives the lease.
    local left = call('PTTL', side)
    if left >= 0 and left < life then call('PEXPIRE', side, long_life) end
  end
  answers[i] = answer
end
return answers
