-- Lets leases live on. KEYS has a lock and its fence key for each request; ARGV has the ttl and the fence key's life in ms,
-- and then a token for each request.
-- Answers two values for each: 1 if the token holds the lock, 2 if nobody does, 3 if somebody else does, each with
-- a 0; or -1 and an error's text.
local ttl, life = ARGV[1], ARGV[2]
local pcall = redis.pcall
local answers = {}

for i = 1, #KEYS, 2 do
  local lock, side, token = KEYS[i], KEYS[i + 1], ARGV[(i + 5) / 2]
  local code, value = 1, 0
  local owner = pcall('GET', lock)
  if not owner then
    code = 2
  elseif type(owner) == 'table' then
    code, value = -1, owner.err
  elseif owner ~= token then
    code = 3
  else
    -- Never shorter: a renewal that was held up on its way would else undo one that overtook it.
    local live = pcall('PTTL', lock)
    local done = type(live) == 'number' and live >= ttl + 0 or pcall('PEXPIRE', lock, ttl)
    if type(done) == 'table' then
      code, value = -1, done.err
    else
      -- The fence outlives the lease by half an hour at least, and is never made to live shorter.
      local left = pcall('PTTL', side)
      if type(left) == 'number' and left >= 0 and left < (life + ttl) / 2 then pcall('PEXPIRE', side, life) end
    end
  end
  answers[i] = code
  answers[i + 1] = value
end
return answers
