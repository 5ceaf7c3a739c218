-- verb: rest
-- from: running
-- to: running
-- what: lets a limit rest, so that no job of it begins, unless it rests for longer already; what this job used of its rate is given back, as it will be released
-- request
--   job_model, ident, token
--   limit     the name of the limit
--   seconds
-- reply
--   done
--   no limit   the job is not limited by that name
--   refused    another owner holds the claim: nothing is changed
--   gone

--@include settling

-- How many limits to look at, of all for which something is set.
local LOOKED_AT = 5

-- Drops some rests that are over: so there never are many more of them than of those that last.
local function forget_lapsed_rests(base, key)
  local found = redis.call('HRANDFIELD', key, LOOKED_AT, 'WITHVALUES')
  for i = 1, #found, 2 do
    local rest = number_in(found[i + 1], 'rest')
    local is_limit = string.sub(found[i], 1, 1) ~= '\n'  -- else it is about the elder
    if is_limit and rest and rest <= now() then set_words(base, found[i], {rest = ''}) end
  end
end

local job = job_of(request.job_model, request.ident)
local refused = refusal(job, checked_token(request.token))
if refused then return answer(refused) end
local need = job.model.limits and need_named(job, request.limit)
if not need then return answer('no limit') end
local base = claim_of(job)._queue_key
local key = shared_key(base, '_limits')
local rests = number_in(redis.call('HGET', key, need.limit), 'rest') or 0
local til = math.max(now() + tonumber(request.seconds) * 1000000, rests)  -- someone may have paused it meanwhile
forget_lapsed_rests(base, key)
set_words(base, need.limit, {rest = string.format('%.0f', til)})
settle_rate(job, request.limit, 0)
return answer('done')
