-- verb: rest
-- from: running
-- to: running
-- what: lets a limit rest, so that no job of it begins; what this job used of its rate is given back, as it will be released
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

local job = job_of(request.job_model, request.ident)
local refused = refusal(job, checked_token(request.token))
if refused then return answer(refused) end
local need = job.model.limits and need_named(job, request.limit)
if not need then return answer('no limit') end
local til = now() + tonumber(request.seconds) * 1000000
set_words(claim_of(job)._queue_key, need.limit, {rest = string.format('%.0f', til)})
settle_rate(job, request.limit, 0)
return answer('done')
