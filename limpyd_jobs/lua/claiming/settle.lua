-- verb: settle
-- from: running
-- to: running
-- what: corrects what a job used of a rate, once that is known: what is left is given back, the rest is a debt
-- request
--   job_model, ident, token
--   limit    the name of the limit
--   amount   in all
-- reply
--   done      also if it was so already
--   no rate   the job used nothing of a rate of that name
--   refused   another owner holds the claim: nothing is changed
--   gone

--@include settling

local job = job_of(request.job_model, request.ident)
local refused = refusal(job, checked_token(request.token))
if refused then return answer(refused) end
return answer(settle_rate(job, request.limit, tonumber(request.amount)) and 'done' or 'no rate')
